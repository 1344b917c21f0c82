#include "core/memory/pool_room.h"

#include "core/memory/pools_table.h"

bool pools_busy(struct pools *pools)
{
    pthread_mutex_lock(&pools->mutex);
    bool busy = pools->waiting > 0;
    for (size_t at = 0; at < pools->count; at++)
        busy |= pools->places[at].pool.turn != 0;
    pools_let_go(pools);
    return busy;
}

bool pools_rely(struct pools *pools, uint64_t handle, uint64_t bytes, uint64_t stream)
{
    struct pool_place *place = pools_hold(pools, handle);
    bool fits = place != NULL && !pools->shared &&
                free_list_fit(&place->free_list, bytes, stream, pools->waiting > 0);
    if (fits)
        place->pool.relying = true;
    pools_let_go(pools);
    return fits;
}

/* A pool that grows gives out the beginning of what it grew by. */
void pools_given(struct pools *pools, uint64_t handle, uint64_t address,
                 const struct pool_growth *growth)
{
    struct pool_place *place = pools_hold(pools, handle);
    if (place != NULL) {
        place->pool.live++;
        if (growth->grown >= growth->bytes)
            free_list_grown(&place->free_list, address, growth->grown);
        free_list_give(&place->free_list, address, growth->bytes);
        place->pool.turn = place->pool.relying = 0;
    }
    pools_let_go(pools);
}

void pools_return(struct pools *pools, uint64_t handle, uint64_t address, uint64_t bytes)
{
    struct pool_place *place = pools_hold(pools, handle);
    if (place != NULL)
        free_list_close(&place->free_list, address, bytes);
    pools_let_go(pools);
}

bool pools_returned(struct pools *pools, uint64_t handle, uint64_t address, uint64_t bytes,
                    uint64_t stream)
{
    struct pool_place *place = pools_hold(pools, handle);
    bool retired = place != NULL && place->pool.retired;
    if (place != NULL) {
        place->pool.live -= place->pool.live > 0;
        free_list_open(&place->free_list, address, bytes, stream, pools->opened++);
    }
    pools_let_go(pools);
    return retired;
}

void pools_kept(struct pools *pools, uint64_t handle, uint64_t address, uint64_t bytes)
{
    struct pool_place *place = pools_hold(pools, handle);
    if (place != NULL)
        free_list_keep(&place->free_list, address, bytes);
    pools_let_go(pools);
}

struct pool_moment pools_now(struct pools *pools)
{
    pthread_mutex_lock(&pools->mutex);
    struct pool_moment now = {pools->opened, pools->entered};
    pools->waiting++;
    pools_let_go(pools);
    return now;
}

void pools_waited(struct pools *pools, uint64_t stream, struct pool_moment moment)
{
    pthread_mutex_lock(&pools->mutex);
    pools->waiting--;
    for (size_t at = 0; at < pools->count; at++) {
        struct pool_place *place = &pools->places[at];
        free_list_waited(&place->free_list, stream, moment.opened);
        if (place->pool.turn || pools->entered != moment.entered)
            free_list_shrunk(&place->free_list);
    }
    pools_let_go(pools);
}

void pools_seen(struct pools *pools, uint64_t thread)
{
    pthread_mutex_lock(&pools->mutex);
    pools_see(pools, thread);
    pools_let_go(pools);
}

uint64_t pools_opened(struct pools *pools)
{
    pthread_mutex_lock(&pools->mutex);
    uint64_t opened = pools->opened;
    pools_let_go(pools);
    return opened;
}

void pools_done(struct pools *pools, uint64_t handle, uint64_t stream, uint64_t opened)
{
    struct pool_place *place = pools_hold(pools, handle);
    if (place != NULL)
        free_list_waited(&place->free_list, stream, opened);
    pools_let_go(pools);
}

void pools_forget_room(struct pools *pools, uint64_t handle)
{
    struct pool_place *place = pools_hold(pools, handle);
    if (place != NULL)
        place->free_list.count = 0;
    pools_let_go(pools);
}

void pools_left(struct pools *pools, uint64_t stream)
{
    pthread_mutex_lock(&pools->mutex);
    for (size_t at = 0; at < pools->count; at++)
        free_list_leave(&pools->places[at].free_list, stream);
    pools_let_go(pools);
}
