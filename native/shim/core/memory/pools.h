/* The memory pools of this process, and what each is charged for: what it holds of the GPU, not
 * what the program has asked it for.
 *
 * What a pool holds the driver tells. Growth is reserved before it can happen; what the pool then
 * holds in fact is entered when the driver has been asked, and the rest of the reservation given
 * back. Answers of the driver arrive late and in any order: one counts only if no other was entered
 * since it was asked for (`version`), so that each is of a moment after the one before.
 *
 * One thread at a time has a pool's turn, that is, may make it grow; the others wait a little
 * before they ask for it. While one has it, what the others see only ever lowers the charge:
 * growth is for the one who has reserved it. The turn is a courtesy and no lock: were it lost, the
 * charge would be too high for a moment, never too low.
 *
 * Any thread; all zero is a valid empty table; calls nothing but the books.
 */
#ifndef SHIM_CORE_MEMORY_POOLS_H
#define SHIM_CORE_MEMORY_POOLS_H

#include "core/memory/books.h"
#include "core/memory/free_list.h"

#ifndef VCUDA_CDEF
#include <stdatomic.h>
#include <stddef.h>
#endif

/* Where a pool is that is on no GPU of ours: on one that is not granted, or charged to nobody. */
enum { POOL_NOT_GRANTED = -1, POOL_NOT_CHARGED = -2 };

/* How a pool grows: in multiples of this, as drivers were seen to. */
#define POOL_QUANTUM (UINT64_C(32) << 20)

/* Where it comes from: the program made it, it is a device's own, or we have not seen it made. */
enum pool_origin { POOL_MADE, POOL_STANDARD, POOL_STRANGE };

struct pool {
    uint64_t handle; /* 0: the place is free */
    int32_t device;  /* index in the configuration, or one of the above */
    enum pool_origin origin;
    bool retired; /* destroyed by the program, but not empty yet */
    bool relying; /* the thread with the turn reserved nothing: the pool should have room */
    uint64_t charged;
    uint64_t version; /* answers of the driver entered so far */
    uint32_t looks;   /* of the manager, before the last one was asked for */
    uint64_t live;    /* allocations not freed yet */
    uint64_t users;   /* who is asking the driver about it just now */
    uint64_t turn;    /* the thread that has it; 0: none has */
    bool managed;     /* what it holds may be on any device */
};

struct pool_place {
    struct pool pool;
    struct free_list free_list;
};

struct pools {
    struct pool_place *places; /* `count` of them, used or free; owned */
    size_t count;
#ifdef VCUDA_CDEF
    ...;
#else
    pthread_mutex_t mutex;
    uint64_t opened;   /* gaps so far: to tell those before a moment from those after */
    uint64_t waiting;  /* threads between pools_now() and pools_waited() */
    uint64_t thread;   /* the first that was seen to use pools */
    bool shared;       /* and it was not the last */
    uint64_t entered;  /* answers to those who had a turn, so far */
    atomic_bool known; /* is there, or was there ever, a pool? For a look without the mutex */
#endif
};

/* Know a pool, if it is not known already. 0, or -ENOMEM. */
int pools_add(struct pools *pools, uint64_t handle, int32_t device, enum pool_origin origin);

/* A pool that holds nothing yet holds managed memory. */
void pools_manage(struct pools *pools, uint64_t handle);

/* The driver knows no such pool: nor do we, unless we have seen it made. */
void pools_forget_stranger(struct pools *pools, uint64_t handle);
void pools_remove(struct pools *pools, uint64_t handle);

/* What is known of a pool. 0, or -ENOENT. With pools_use() its handle stays good until
 * pools_leave(). */
int pools_find(struct pools *pools, uint64_t handle, struct pool *found);

int pools_use(struct pools *pools, uint64_t handle, struct pool *found);
void pools_leave(struct pools *pools, uint64_t handle);

/* The same by place, for a walk; -ENOENT at the end, `found->handle` 0 for a free place. */
int pools_at(struct pools *pools, size_t place, struct pool *found);

/* Take the pool's turn if nobody has it, or else if `anyway`: then what is known of it is `found`.
 * thread: who takes it, as for pools_seen() (pool_room.h). */
bool pools_take_turn(struct pools *pools, uint64_t handle, uint64_t thread, bool anyway,
                     struct pool *found);
void pools_end_turn(struct pools *pools, uint64_t handle);

/* The program is done with the pool. And once nothing of it is left, forget it: then it is for the
 * caller to destroy. */
void pools_retire(struct pools *pools, uint64_t handle);
bool pools_end(struct pools *pools, uint64_t handle);

/* Forget all and give the table's memory back. */
void pools_clear(struct pools *pools);

#ifndef VCUDA_CDEF
static inline bool pools_known(struct pools *pools)
{
    return atomic_load_explicit(&pools->known, memory_order_relaxed);
}
#endif

#endif
