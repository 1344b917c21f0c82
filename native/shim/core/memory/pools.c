#include "core/heap.h"
#include "core/memory/pools_table.h"

#include <errno.h>
#include <stdlib.h>

enum { PLACES_FIRST = 4 };

/* The pool of a handle; with 0, a free place. The mutex is held, as in all that follows. */
static struct pool_place *look_up(const struct pools *pools, uint64_t handle)
{
    for (size_t place = 0; place < pools->count; place++)
        if (pools->places[place].pool.handle == handle)
            return &pools->places[place];
    return NULL;
}

struct pool_place *pools_hold(struct pools *pools, uint64_t handle)
{
    pthread_mutex_lock(&pools->mutex);
    return handle == 0 ? NULL : look_up(pools, handle);
}

void pools_let_go(struct pools *pools)
{
    pthread_mutex_unlock(&pools->mutex);
}

static struct pool_place *free_place(struct pools *pools)
{
    struct pool_place *place = look_up(pools, 0);
    if (place != NULL)
        return place;
    size_t count = pools->count == 0 ? PLACES_FIRST : pools->count * 2;
    struct pool_place *places = heap_kept(realloc(pools->places, count * sizeof *places));
    if (places == NULL)
        return NULL;
    for (size_t at = pools->count; at < count; at++)
        places[at] = (struct pool_place){0};
    place = &places[pools->count];
    pools->places = places;
    pools->count = count;
    return place;
}

int pools_add(struct pools *pools, uint64_t handle, int32_t device, enum pool_origin origin)
{
    struct pool_place *place = pools_hold(pools, handle);
    bool known = place != NULL;
    if (!known)
        place = free_place(pools);
    if (place != NULL && !known) {
        place->pool = (struct pool){.handle = handle, .device = device, .origin = origin};
        place->free_list.count = place->free_list.chunk_count = 0;
        atomic_store_explicit(&pools->known, true, memory_order_relaxed);
    }
    pools_let_go(pools);
    return place != NULL ? 0 : -ENOMEM;
}

void pools_manage(struct pools *pools, uint64_t handle)
{
    struct pool_place *place = pools_hold(pools, handle);
    if (place != NULL)
        place->pool.managed = true;
    pools_let_go(pools);
}

void pools_remove(struct pools *pools, uint64_t handle)
{
    struct pool_place *place = pools_hold(pools, handle);
    if (place != NULL) {
        place->pool.handle = 0;
    }
    pools_let_go(pools);
}

void pools_forget_stranger(struct pools *pools, uint64_t handle)
{
    struct pool_place *place = pools_hold(pools, handle);
    if (place != NULL && place->pool.origin == POOL_STRANGE && place->pool.charged == 0)
        place->pool.handle = 0;
    pools_let_go(pools);
}

int pools_find(struct pools *pools, uint64_t handle, struct pool *found)
{
    const struct pool_place *place = pools_hold(pools, handle);
    if (place != NULL)
        *found = place->pool;
    pools_let_go(pools);
    return place != NULL ? 0 : -ENOENT;
}

int pools_use(struct pools *pools, uint64_t handle, struct pool *found)
{
    struct pool_place *place = pools_hold(pools, handle);
    if (place != NULL) {
        place->pool.users++;
        *found = place->pool;
    }
    pools_let_go(pools);
    return place != NULL ? 0 : -ENOENT;
}

void pools_leave(struct pools *pools, uint64_t handle)
{
    struct pool_place *place = pools_hold(pools, handle);
    if (place != NULL)
        place->pool.users--;
    pools_let_go(pools);
}

int pools_at(struct pools *pools, size_t place, struct pool *found)
{
    pthread_mutex_lock(&pools->mutex);
    bool there = place < pools->count;
    if (there)
        *found = pools->places[place].pool;
    pools_let_go(pools);
    return there ? 0 : -ENOENT;
}

bool pools_take_turn(struct pools *pools, uint64_t handle, uint64_t thread, bool anyway,
                     struct pool *found)
{
    struct pool_place *place = pools_hold(pools, handle);
    bool taken = place == NULL || place->pool.turn == 0 || anyway;
    pools_see(pools, thread);
    if (taken && place != NULL) {
        place->pool.turn = thread;
        *found = place->pool;
    }
    pools_let_go(pools);
    return taken;
}

void pools_end_turn(struct pools *pools, uint64_t handle)
{
    struct pool_place *place = pools_hold(pools, handle);
    if (place != NULL)
        place->pool.turn = place->pool.relying = 0;
    pools_let_go(pools);
}

void pools_retire(struct pools *pools, uint64_t handle)
{
    struct pool_place *place = pools_hold(pools, handle);
    if (place != NULL)
        place->pool.retired = true;
    pools_let_go(pools);
}

bool pools_end(struct pools *pools, uint64_t handle)
{
    struct pool_place *place = pools_hold(pools, handle);
    const struct pool *pool = place != NULL ? &place->pool : NULL;
    bool ends =
        pool != NULL && pool->retired && pool->live == 0 && pool->charged == 0 && pool->users == 0;
    if (ends)
        place->pool.handle = 0;
    pools_let_go(pools);
    return ends;
}

void pools_clear(struct pools *pools)
{
    pthread_mutex_lock(&pools->mutex);
    free(pools->places);
    pools->places = NULL;
    pools->count = 0;
    pools_let_go(pools);
}
