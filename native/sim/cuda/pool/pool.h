/* Memory pools: what they hold of the GPU, and who of the program has it.
 *
 * A pool takes memory of the GPU in chunks, a multiple of POOL_GRANULARITY each (what drivers were
 * seen to do for small requests), and divides them in multiples of POOL_ALIGNMENT, first fit. A
 * chunk is charged to the ledger for as long as the pool has it: RESERVED, of which USED counts the
 * bytes the program asked for.
 *
 * A free is ordered by its stream. Until the stream's work before it is done, what was freed is for
 * that stream to take again, and for others by the pool's policies (enum reuse), which all hold
 * until the program forbids them (CUDA programming guide, "Stream-Ordered Memory Allocator", reuse
 * policies; CUmemPool_attribute). After that its chunk, once all of it is free, can go back to the
 * GPU: when the program trims, or at a synchronisation while the pool holds more than its release
 * threshold. What a synchronisation has seen done is for all, whatever is forbidden.
 *
 * Managed pools (CUDA 13.0) are charged in full as managed memory is: to the device that they
 * prefer, or else to the one whose stream made them grow.
 *
 * A pool belongs to no context. Where it can be exported, its pages are those of a file that the
 * importer maps too; the importer is charged nothing.
 *
 * driver->mutex is held by whoever calls the functions here, but for pool_synchronised().
 */
#ifndef SIM_CUDA_POOL_POOL_H
#define SIM_CUDA_POOL_POOL_H

#include "cuda/stream/queue.h"

enum { POOL_ALIGNMENT = 512 };
#define POOL_GRANULARITY (UINT64_C(32) << 20)

/* A piece of a chunk, in use or free. */
struct block {
    struct block *next; /* the one after it in the chunk */
    CUdeviceptr start;
    uint64_t bytes;
    bool used;
    int device;             /* where it was freed, */
    uint64_t stream;        /* in which stream (its number; 0 a default stream), */
    struct sim_reach reach; /* and the work before that; nothing: it is done */
};

/* device: whose memory it is; -1 for the host's. */
struct chunk {
    struct chunk *next;
    void *pages;
    uint64_t bytes;
    int device;
    uint64_t file_offset; /* of a pool that has a file */
    struct block *blocks;
};

/* How what another stream freed may be taken again. */
enum reuse {
    REUSE_FOLLOW_EVENT,  /* where events have ordered the free before the taking */
    REUSE_OPPORTUNISTIC, /* where the work before the free is done */
    REUSE_INTERNAL,      /* where the GPU has no more: the taker is made to wait for it */
};

/* Which stream takes or frees. waits: what its next work has to wait for. */
struct pool_stream {
    int device;
    uint64_t number;
    struct sim_reach reach;
    const uint64_t *followed; /* queue_followed() */
    struct lane_waits waits;
};

/* Of a free that does not wait for anything. */
#define POOL_NO_STREAM ((struct pool_stream){.device = -1})

/* Let a new pool be used by the device it is on. */
static inline void pool_permit_own(struct pool *pool)
{
    enum { ACCESS_READ_WRITE = 3 };
    if (pool->device >= 0)
        pool->access[pool->device] = ACCESS_READ_WRITE;
}

/* Let it be used so, and found among those that programs made. */
void pool_enter(struct driver *driver, struct pool *pool);

/* Allocate; CUDA_ERROR_OUT_OF_MEMORY if the GPU or the pool has no more. */
CUresult pool_take(struct driver *driver, struct pool *pool, uint64_t bytes,
                   struct pool_stream *stream, CUdeviceptr *out);

/* Take an allocation back that is out of the address map already. */
void pool_give(struct driver *driver, const struct allocation *gone, struct pool_stream stream);

/* Give memory back to the GPU while `keep` bytes remain. */
void pool_trim(struct driver *driver, struct pool *pool, uint64_t keep);

/* Enter pages the pool has got as a chunk of one block; NULL without memory. */
struct chunk *pool_add_chunk(struct pool *pool, void *pages, uint64_t bytes);

/* Make one without memory; CUDA_ERROR_OUT_OF_MEMORY. */
CUresult pool_make(struct driver *driver, struct pool like, struct pool **out);

/* Where a managed pool would be, and the device it prefers; -1 for none. */
CUresult pool_managed_place(const struct driver *driver, CUmemLocation *location, int *device);

/* A pool that goes is current nowhere any more. */
void pool_replace_by_default(struct driver *driver, const struct pool *gone);

/* Destroy what is left of a pool once it is destroyed and nothing of it is in use. */
void pool_end_if_unused(struct driver *driver, struct pool *pool);

/* A stream, an event or a context of the device was waited for. Takes driver->mutex. */
void pool_synchronised(struct driver *driver, int device);

static inline bool is_pool(const struct pool *pool)
{
    return pool != NULL && pool->kind == POOL;
}

#endif
