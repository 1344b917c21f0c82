#include "core/memory/pool_growth.h"

#include "core/memory/pools_table.h"

#include <errno.h>

uint64_t pool_growth(uint64_t bytes)
{
    return bytes > UINT64_MAX - POOL_QUANTUM
               ? UINT64_MAX
               : (bytes + POOL_QUANTUM - 1) / POOL_QUANTUM * POOL_QUANTUM;
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
        free_list_shrunk(&place->free_list);
        books_release(books, (unsigned)pool->device, charged - held);
    }
    if (pool->managed)
        books_manage(books, (unsigned)pool->device, (int64_t)(held - charged), books->devices);
    pool->charged = held;
    pool->looks = answer.looks;
}

int pools_enter(struct pools *pools, struct books *books, uint64_t handle,
                struct pool_answer answer, uint64_t limit, struct pool_growth *mine, bool surely)
{
    struct pool_place *place = pools_hold(pools, handle);
    if (place != NULL)
        place->pool.users--;
    bool late = place != NULL && place->pool.version != answer.version;
    if (late && surely && mine != NULL) {
        answer.held = place->pool.charged + mine->reserved;
        late = false;
    }
    if (place != NULL && !late && place->pool.device >= 0)
        enter(pools, place, books, answer, limit, mine);
    pools_let_go(pools);
    return late ? -EAGAIN : 0;
}
