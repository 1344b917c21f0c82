/* The inside of the table of pools, for what it is made of: nobody else. */
#ifndef SHIM_CORE_MEMORY_POOLS_TABLE_H
#define SHIM_CORE_MEMORY_POOLS_TABLE_H

#include "core/memory/pools.h"

/* Take the mutex and find the pool of a handle; NULL for one that is not known. In either case
 * pools_let_go() must follow. */
struct pool_place *pools_hold(struct pools *pools, uint64_t handle);
void pools_let_go(struct pools *pools);

/* A thread uses pools. With the mutex. */
static inline void pools_see(struct pools *pools, uint64_t thread)
{
    pools->shared |= pools->thread != 0 && pools->thread != thread;
    pools->thread = thread;
}

#endif
