/* What pools have free inside (free_list.h), and whether it may be relied upon. Any thread. */
#ifndef SHIM_CORE_MEMORY_POOL_ROOM_H
#define SHIM_CORE_MEMORY_POOL_ROOM_H

#include "core/memory/pool_growth.h"

/* With the turn: is the pool expected to have room for it already? Then it is relied upon: until
 * pools_enter() nobody else lowers the charge, lest what the pool gives back meanwhile and must
 * take again be given to others. */
bool pools_rely(struct pools *pools, uint64_t handle, uint64_t bytes, uint64_t stream);

/* The driver gave out memory of the pool: that ends the turn. */
void pools_given(struct pools *pools, uint64_t handle, uint64_t address,
                 const struct pool_growth *growth);

/* It is about to take some back; it has, of a pool that may be retired; it has not. */
void pools_return(struct pools *pools, uint64_t handle, uint64_t address, uint64_t bytes);
bool pools_returned(struct pools *pools, uint64_t handle, uint64_t address, uint64_t bytes,
                    uint64_t stream);
void pools_kept(struct pools *pools, uint64_t handle, uint64_t address, uint64_t bytes);

/* A thread, known by any number but 0, allocates from pools or makes them give back. What a pool
 * keeps is relied on only while there is one: another's waiting could make it go in between. */
void pools_seen(struct pools *pools, uint64_t thread);

/* Gaps opened so far; and the work of a stream is done that came before so many were, as the driver
 * will find that takes what is merely done for another stream. If it is no longer to, none of what
 * was so relied upon is. */
uint64_t pools_opened(struct pools *pools);
void pools_done(struct pools *pools, uint64_t handle, uint64_t stream, uint64_t opened);
void pools_forget_room(struct pools *pools, uint64_t handle);

/* A stream is gone, GAP_ANY: all are. */
void pools_left(struct pools *pools, uint64_t stream);

/* Is any thread allocating from a pool, or making one give back? What it has too much of the books
 * it will have given back in a moment. */
bool pools_busy(struct pools *pools);

/* A moment before the driver may give memory back: before it is waited for, or told to. */
struct pool_moment {
    uint64_t opened, entered;
};
struct pool_moment pools_now(struct pools *pools);

/* And after, when what pools hold then has been entered, always: the work of a stream (GAP_ANY: of
 * all, GAP_CLOSED: of none) is done that was there at that moment. Where a pool may have grown
 * meanwhile, what it gave back does not show in what it holds, and is taken for given. */
void pools_waited(struct pools *pools, uint64_t stream, struct pool_moment moment);

#endif
