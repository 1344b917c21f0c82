#include "core/pools.h"

#include <errno.h>
#include <stdlib.h>

enum { PLACES_FIRST = 4 };

#define QUANTUM_LEAST (UINT64_C(2) << 20)

/* The pool of a handle; with 0, a free place. The mutex is held, as in all that follows. */
static struct pool_place *look_up(const struct pools *pools, uint64_t handle)
{
    for (size_t place = 0; place < pools->count; place++)
        if (pools->places[place].pool.handle == handle)
            return &pools->places[place];
    return NULL;
}

/* The same of a handle that is one, with the mutex taken: let_go() must follow. */
static struct pool_place *hold(struct pools *pools, uint64_t handle)
{
    pthread_mutex_lock(&pools->mutex);
    return handle == 0 ? NULL : look_up(pools, handle);
}

static void let_go(struct pools *pools)
{
    pthread_mutex_unlock(&pools->mutex);
}

static struct pool_place *free_place(struct pools *pools)
{
    struct pool_place *place = look_up(pools, 0);
    if (place != NULL)
        return place;
    size_t count = pools->count == 0 ? PLACES_FIRST : pools->count * 2;
    struct pool_place *places = realloc(pools->places, count * sizeof *places);
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
    struct pool_place *place = hold(pools, handle);
    bool known = place != NULL;
    if (!known)
        place = free_place(pools);
    if (place != NULL && !known) {
        place->pool = (struct pool){.handle = handle, .device = device, .origin = origin};
        place->gaps.count = place->gaps.chunk_count = 0;
        atomic_store_explicit(&pools->known, true, memory_order_relaxed);
    }
    let_go(pools);
    return place != NULL ? 0 : -ENOMEM;
}

void pools_remove(struct pools *pools, uint64_t handle)
{
    struct pool_place *place = hold(pools, handle);
    if (place != NULL) {
        place->pool.handle = 0;
    }
    let_go(pools);
}

void pools_forget_stranger(struct pools *pools, uint64_t handle)
{
    struct pool_place *place = hold(pools, handle);
    if (place != NULL && place->pool.origin == POOL_STRANGE && place->pool.charged == 0)
        place->pool.handle = 0;
    let_go(pools);
}

int pools_find(struct pools *pools, uint64_t handle, struct pool *found)
{
    const struct pool_place *place = hold(pools, handle);
    if (place != NULL)
        *found = place->pool;
    let_go(pools);
    return place != NULL ? 0 : -ENOENT;
}

int pools_use(struct pools *pools, uint64_t handle, struct pool *found)
{
    struct pool_place *place = hold(pools, handle);
    if (place != NULL) {
        place->pool.users++;
        *found = place->pool;
    }
    let_go(pools);
    return place != NULL ? 0 : -ENOENT;
}

void pools_leave(struct pools *pools, uint64_t handle)
{
    struct pool_place *place = hold(pools, handle);
    if (place != NULL)
        place->pool.users--;
    let_go(pools);
}

int pools_at(struct pools *pools, size_t place, struct pool *found)
{
    pthread_mutex_lock(&pools->mutex);
    bool there = place < pools->count;
    if (there)
        *found = pools->places[place].pool;
    let_go(pools);
    return there ? 0 : -ENOENT;
}

static void see(struct pools *pools, uint64_t thread)
{
    pools->shared |= pools->thread != 0 && pools->thread != thread;
    pools->thread = thread;
}

void pools_seen(struct pools *pools, uint64_t thread)
{
    pthread_mutex_lock(&pools->mutex);
    see(pools, thread);
    let_go(pools);
}

bool pools_take_turn(struct pools *pools, uint64_t handle, uint64_t thread, bool anyway,
                     struct pool *found)
{
    struct pool_place *place = hold(pools, handle);
    bool taken = place == NULL || !place->pool.turn || anyway;
    see(pools, thread);
    if (taken && place != NULL) {
        place->pool.turn = true;
        *found = place->pool;
    }
    let_go(pools);
    return taken;
}

void pools_end_turn(struct pools *pools, uint64_t handle)
{
    struct pool_place *place = hold(pools, handle);
    if (place != NULL)
        place->pool.turn = place->pool.relying = false;
    let_go(pools);
}

static uint64_t quantum_of(const struct pool *pool)
{
    return pool->quantum == 0 ? POOL_QUANTUM : pool->quantum;
}

uint64_t pool_growth(const struct pool *pool, uint64_t bytes)
{
    uint64_t quantum = quantum_of(pool);
    return bytes > UINT64_MAX - quantum ? UINT64_MAX : (bytes + quantum - 1) / quantum * quantum;
}

bool pools_busy(struct pools *pools)
{
    pthread_mutex_lock(&pools->mutex);
    bool busy = pools->waiting > 0;
    for (size_t at = 0; at < pools->count; at++)
        busy |= pools->places[at].pool.turn;
    let_go(pools);
    return busy;
}

bool pools_rely(struct pools *pools, uint64_t handle, uint64_t bytes, uint64_t stream)
{
    struct pool_place *place = hold(pools, handle);
    bool fits = place != NULL && !pools->shared &&
                gaps_fit(&place->gaps, bytes, stream, pools->waiting > 0);
    if (fits)
        place->pool.relying = true;
    let_go(pools);
    return fits;
}

static uint64_t common_divisor(uint64_t one, uint64_t other)
{
    while (other != 0) {
        uint64_t rest = one % other;
        one = other;
        other = rest;
    }
    return one;
}

/* Learn from a growth by how much the pool grows. */
static void learn(struct pool *pool, uint64_t grown, bool more_than_reserved)
{
    uint64_t quantum = common_divisor(quantum_of(pool), grown);
    if (more_than_reserved) {
        pool->coarse = true;
        pool->quantum = grown > POOL_QUANTUM ? grown : POOL_QUANTUM;
    } else if (!pool->coarse) {
        pool->quantum = quantum > QUANTUM_LEAST ? quantum : QUANTUM_LEAST;
    }
}

/* Growth is paid from what was reserved for it; what is more is there already, whatever the limit.
 */
static void grow(struct pool *pool, struct books *books, uint64_t grown, uint64_t limit,
                 struct pool_growth *mine)
{
    uint64_t reserved = mine != NULL ? mine->reserved : 0;
    uint64_t paid = reserved < grown ? reserved : grown;
    if (paid < grown)
        books_admit(books, (unsigned)pool->device, grown - paid);
    if (mine == NULL)
        return;
    learn(pool, grown, paid < grown);
    mine->reserved -= paid;
    mine->grown = grown;
    mine->over = paid < grown && books_total(books, (unsigned)pool->device) > limit;
}

static void enter(struct pools *pools, struct pool_place *place, struct books *books,
                  struct pool_answer answer, uint64_t limit, struct pool_growth *mine)
{
    struct pool *pool = &place->pool;
    uint64_t charged = pool->charged, held = answer.held;
    pool->version++;
    if (mine == NULL && pool->turn && (pool->relying || held > charged))
        return; /* who has the turn has to ask again, and enters it */
    pool->relying = false;
    pools->entered += mine != NULL;
    if (held > charged)
        grow(pool, books, held - charged, limit, mine);
    if (held < charged) {
        gaps_shrunk(&place->gaps);
        books_release(books, (unsigned)pool->device, charged - held);
    }
    pool->charged = held;
    pool->looks = answer.looks;
}

int pools_enter(struct pools *pools, struct books *books, uint64_t handle,
                struct pool_answer answer, uint64_t limit, struct pool_growth *mine, bool surely)
{
    struct pool_place *place = hold(pools, handle);
    if (place != NULL)
        place->pool.users--;
    bool late = place != NULL && place->pool.version != answer.version;
    if (late && surely && mine != NULL) {
        answer.held = place->pool.charged + mine->reserved;
        late = false;
    }
    if (place != NULL && !late && place->pool.device >= 0)
        enter(pools, place, books, answer, limit, mine);
    let_go(pools);
    return late ? -EAGAIN : 0;
}

/* A pool that grows gives out the beginning of what it grew by. */
void pools_given(struct pools *pools, uint64_t handle, uint64_t address,
                 const struct pool_growth *growth)
{
    struct pool_place *place = hold(pools, handle);
    if (place != NULL) {
        place->pool.live++;
        if (growth->grown >= growth->bytes)
            gaps_grown(&place->gaps, address, growth->grown);
        gaps_give(&place->gaps, address, growth->bytes);
        place->pool.turn = place->pool.relying = false;
    }
    let_go(pools);
}

void pools_return(struct pools *pools, uint64_t handle, uint64_t address, uint64_t bytes)
{
    struct pool_place *place = hold(pools, handle);
    if (place != NULL)
        gaps_close(&place->gaps, address, bytes);
    let_go(pools);
}

bool pools_returned(struct pools *pools, uint64_t handle, uint64_t address, uint64_t bytes,
                    uint64_t stream)
{
    struct pool_place *place = hold(pools, handle);
    bool retired = place != NULL && place->pool.retired;
    if (place != NULL) {
        place->pool.live -= place->pool.live > 0;
        gaps_open(&place->gaps, address, bytes, stream, pools->opened++);
    }
    let_go(pools);
    return retired;
}

void pools_kept(struct pools *pools, uint64_t handle, uint64_t address, uint64_t bytes)
{
    struct pool_place *place = hold(pools, handle);
    if (place != NULL)
        gaps_keep(&place->gaps, address, bytes);
    let_go(pools);
}

struct pool_moment pools_now(struct pools *pools)
{
    pthread_mutex_lock(&pools->mutex);
    struct pool_moment now = {pools->opened, pools->entered};
    pools->waiting++;
    let_go(pools);
    return now;
}

void pools_waited(struct pools *pools, uint64_t stream, struct pool_moment moment)
{
    pthread_mutex_lock(&pools->mutex);
    pools->waiting--;
    for (size_t at = 0; at < pools->count; at++) {
        struct pool_place *place = &pools->places[at];
        gaps_waited(&place->gaps, stream, moment.opened);
        if (place->pool.turn || pools->entered != moment.entered)
            gaps_shrunk(&place->gaps);
    }
    let_go(pools);
}

void pools_retire(struct pools *pools, uint64_t handle)
{
    struct pool_place *place = hold(pools, handle);
    if (place != NULL)
        place->pool.retired = true;
    let_go(pools);
}

bool pools_end(struct pools *pools, uint64_t handle)
{
    struct pool_place *place = hold(pools, handle);
    const struct pool *pool = place != NULL ? &place->pool : NULL;
    bool ends =
        pool != NULL && pool->retired && pool->live == 0 && pool->charged == 0 && pool->users == 0;
    if (ends)
        place->pool.handle = 0;
    let_go(pools);
    return ends;
}

void pools_clear(struct pools *pools)
{
    pthread_mutex_lock(&pools->mutex);
    free(pools->places);
    pools->places = NULL;
    pools->count = 0;
    let_go(pools);
}
