/* Charging for memory pools (core/memory/pools.h) around calls of the driver.
 *
 *     pool_begin → the driver allocates from the pool → pool_finish
 *
 * Before the driver may make a pool grow, as much is reserved as it may grow by. Where the limit
 * has no room for that, the driver is asked only if the pool is expected to have what is wanted;
 * else what was freed in other streams is waited for (cuda/memory/streams.h), then what pools keep
 * in reserve is given back, and each time it is tried once more. Should a pool grow after all
 * beyond what there is room for, it is undone and refused.
 *
 * What a stream captures into a graph is not charged here: it is the graph's.
 */
#ifndef SHIM_CUDA_POOL_POOL_H
#define SHIM_CUDA_POOL_POOL_H

#include "core/memory/pool_room.h"
#include "cuda/memory/charge.h"

/* One allocation from a pool. */
struct pool_call {
    struct process *process; /* NULL: nothing is charged */
    bool plain;              /* a driver that tells nothing of its pools: charged as asked for */
    struct charge charge;    /* of that */
    struct pool pool;        /* as it was when its turn came */
    unsigned device;
    CUstream stream;
    struct pool_growth growth;
};

/* Begin an allocation from a pool; NULL: the current one of the stream's device. On an error the
 * call must not be made. */
CUresult pool_begin(struct pool_call *call, uint64_t bytes, CUmemoryPool pool, CUstream stream);

/* The driver has answered. Returns what the program gets. */
CUresult pool_finish(struct pool_call *call, CUresult result, const CUdeviceptr *address);

/* Know a pool by its location and the type of its allocations, as cuMemPoolCreate is given them,
 * unless it is known already. 0, or -ENOMEM. */
int pool_know(struct process *process, CUmemoryPool handle, const CUmemLocation *location,
              int allocation, enum pool_origin origin);

/* The driver took back what it gave; stream: as in core/memory/free_list.h. */
void pool_given_back(struct process *process, const struct pointer *gone, uint64_t stream);

/* Ask the driver what a pool holds and enter that. mine: of who has the pool's turn, or NULL. While
 * memory moves. */
void pool_enter(struct process *process, uint64_t handle, struct pool_growth *mine);

/* The same if the manager may have looked since it was last done, by what was known of the pool
 * some time ago: before memory of it moves, with slot_move_begin(), so that what it gave back by
 * itself until now is told from what it will. */
void pool_catch_up(struct process *process, const struct pool *pool);

/* The same of one or of each; those end that are destroyed and empty. */
void pool_settle(struct process *process, uint64_t handle);
void pool_settle_all(struct process *process);

/* Make the pools of a device give back what they keep. Was there anything to give? */
bool pool_trim_all(struct process *process, unsigned device);

/* The work of a stream is done that came before so many gaps were opened (core/memory/pool_room.h).
 */
void pool_stream_done(struct process *process, unsigned device, uint64_t stream, uint64_t opened);

/* The program destroys a pool of its own: end it now, or when it is empty. */
CUresult pool_retire(struct process *process, const struct pool *pool);

/* What the calling thread is known by. */
static inline uint64_t pool_thread(void)
{
    return (uintptr_t)pthread_self();
}

/* What a stream is known by: the default stream of a thread by the thread, and as no handle is. */
static inline uint64_t pool_stream_key(CUstream stream)
{
    if (stream == CU_STREAM_PER_THREAD)
        return pool_thread() | 1;
    return stream == NULL ? (uintptr_t)CU_STREAM_LEGACY : (uintptr_t)stream;
}

#endif
