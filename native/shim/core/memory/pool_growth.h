/* What pools are charged for: by how much they may grow, and what they then hold in fact.
 *
 * A pool grows by multiples of POOL_QUANTUM at most. Any thread.
 */
#ifndef SHIM_CORE_MEMORY_POOL_GROWTH_H
#define SHIM_CORE_MEMORY_POOL_GROWTH_H

#include "core/memory/pools.h"

/* What the driver says that a pool holds, and what was so before it was asked. */
struct pool_answer {
    uint64_t held;
    uint64_t version;
    uint32_t looks; /* books_looks() */
};

/* What a thread that has the turn has reserved, and what came of it. */
struct pool_growth {
    uint64_t bytes;    /* asked of the pool */
    uint64_t reserved; /* and not used up: still to be given back */
    uint64_t grown;    /* set by pools_enter() */
    bool over;         /* it grew by more than was reserved and the limit has room for */
};

/* By how much a pool may grow at most for a request. */
uint64_t pool_growth(uint64_t bytes);

/* Enter what the driver says the pool holds, and leave it, as after pools_use(). mine: of the
 * thread that has the turn, else NULL. -EAGAIN: too late, ask again; or `surely`, then all that was
 * reserved passes for grown, until somebody asks. Who has no turn need not insist: whoever was in
 * between knows. */
int pools_enter(struct pools *pools, struct books *books, uint64_t handle,
                struct pool_answer answer, uint64_t limit, struct pool_growth *mine, bool surely);

#endif
