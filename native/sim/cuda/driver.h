/* The driver as one process has it: which GPUs it sees, its slot in the shared state, its objects.
 *
 * Everything starts with cuInit, nothing before it. The whole of `struct driver` lies in memory the
 * kernel wipes on fork, so that a child is not initialised, whatever its parent did.
 *
 * Locks: driver->mutex guards the objects of this process; sim_lock() the shared state, and is
 * taken second. Neither is held while sleeping.
 */
#ifndef SIM_CUDA_DRIVER_H
#define SIM_CUDA_DRIVER_H

#include "core/state.h"
#include "core/task.h"
#include "cuda/api.h"
#include <stdatomic.h>

enum { DEFAULT_CUDA_VERSION = 12050 };

enum object_kind { /* first word of every object, 0 once it is destroyed */
                   NO_OBJECT = 0,
                   CONTEXT = 0x43545830,
                   MODULE,
                   FUNCTION,
                   STREAM,
                   EVENT,
                   POOL,
                   GRAPH,
                   NODE,
                   EXEC,
                   USER_OBJECT,
                   LINKER,
                   GREEN,
                   DESCRIPTION,
};

struct context {
    uint32_t kind;
    int device;
    unsigned references; /* of a primary context */
    unsigned flags;
    unsigned cache_config;
    unsigned shared_config;
    uint64_t number;
    struct green *green; /* what it is another form of (green.h), or NULL */
    size_t limits[8];
    uint64_t heap_bytes;  /* taken for limits that were raised */
    uint64_t stack_bytes; /* and for stacks, at launches */
};

/* A memory pool (pool.h). device: -1 for one in the host's memory, and for managed memory that
 * prefers none. */
struct pool {
    uint32_t kind;
    int device;
    bool standard; /* the device's own, which cannot be destroyed */
    bool imported;
    bool managed;
    CUmemLocation location; /* as location_resolve() has it */
    int file;               /* its memory, if it can be exported or was imported; else -1 */
    uint64_t file_end;
    uint64_t max_size; /* 0: no bound of its own */
    uint64_t release_threshold;
    uint64_t reserved, reserved_high;
    uint64_t used, used_high;
    unsigned live;    /* allocations not yet freed */
    int forbidden[3]; /* of the three policies of reuse, by enum reuse */
    int access[SIM_GPUS];
    struct chunk *chunks;
    struct pool *next; /* of driver->made_pools */
};

/* What device memory is for. */
enum memory_kind {
    MEMORY_PLAIN,
    MEMORY_LOW, /* at addresses of 32 bit */
    MEMORY_MANAGED,
    MEMORY_ARRAY,
    MEMORY_CODE,
};

/* What the driver took for something (taken.h). All zero: nothing. */
struct taken {
    struct context *context;
    enum memory_kind kind;
    uint64_t bytes; /* whole pages of its own, or */
    struct slab *slab;
    CUdeviceptr place; /* in the slab */
};

/* What a program said of managed memory (managed.c): bits by device, one above them the host. */
struct advice {
    bool read_mostly;
    uint32_t accessed_by;
    CUmemLocation preferred, prefetched; /* of type 0: none */
};

/* Attributes of a stream (stream/attributes.c); all zero: as it was made. */
struct stream_attributes {
    unsigned char window[32];
    unsigned policy;
    unsigned domain;
    bool mapped;
    unsigned char standard_domain, remote_domain;
};

/* One allocation of device memory. Its pages become real when something is copied there. */
struct allocation {
    CUdeviceptr start;
    uint64_t bytes;
    size_t mapped;
    struct context *context;   /* NULL: it ends with none */
    struct pool *pool;         /* its pages are the pool's */
    struct graph_block *block; /* of a graph; its memory is counted there */
    struct taken taken;        /* nothing where it has one of the two, or is not ours */
    uint64_t number;
    bool managed;
    struct advice advice;
    bool committed;
    bool host;        /* memory of the host that a program allocated or registered */
    bool registered;  /* of these: it was the program's own */
    bool sync_memops; /* an attribute that programs set, and nothing else */
    unsigned host_flags;
    struct mapping *mapping; /* of physical memory that is counted by itself, or NULL (virtual.h) */
    struct opened *opened;   /* memory of another process, or NULL (ipc.c) */
    int file;                /* what other processes reach it by; 0 for none */
};

/* The device an allocation is on; -1 for the host. */
static inline int allocation_device(const struct allocation *allocation)
{
    return allocation->pool != NULL ? allocation->pool->device : allocation->context->device;
}

/* Ordered by address. */
struct address_map {
    struct allocation *items;
    size_t count;
    size_t capacity;
};

/* Addresses that cuMemAddressReserve gave out. */
struct reservation {
    CUdeviceptr start;
    uint64_t bytes;
};

struct reservations {
    struct reservation *items;
    size_t count;
    size_t capacity;
};

/* Physical memory by handle: places are used again. */
struct physical_table {
    struct physical **items;
    size_t count;
};

/* Physical memory for graphs on one device. live: of allocations that are not freed. busy: the
 * work up to which graphs that use memory may be running. */
struct graph_store {
    uint64_t reserved;
    uint64_t reserved_high;
    uint64_t used_high;
    uint64_t live;
    struct sim_reach busy;
};

struct driver {
    atomic_bool ready; /* set last by cuInit (release), read first by everything (acquire) */
    pthread_mutex_t starting;
    pthread_mutex_t mutex;
    struct sim_state *state;
    struct sim_process *process;
    unsigned device_count;
    unsigned gpus[SIM_GPUS]; /* of each device */
    struct context primaries[SIM_GPUS];
    struct pool default_pools[SIM_GPUS];
    struct pool *pools[SIM_GPUS]; /* the current ones */
    struct pool *made_pools;      /* by the program, the latest first; destroyed ones in use too */
    struct pool_place *pool_places;
    struct address_map memory;
    struct address_map host_memory;
    struct slab *slabs;
    struct reservations reservations;
    struct physical_table physicals;
    struct array *arrays;   /* of all contexts, mipmapped ones too */
    struct module *modules; /* all that are loaded */
    struct graph_store graphs[SIM_GPUS];
    struct exec *execs;
    struct view *views;                            /* textures and surfaces */
    struct stream_attributes attributes[SIM_GPUS]; /* of default streams */
    struct pending *pending;                       /* memory operations of streams */
    atomic_uint pending_count;
    struct condition *conditions; /* handles of conditional nodes */
    pthread_mutex_t launching; /* before `mutex`: a graph that allocates is, or memory is trimmed */
    pthread_mutex_t host_mutex;   /* alone, or before the shared state's */
    struct host_call *host_calls; /* the first submitted first (host_call.h) */
    unsigned host_pending;        /* and one that runs, and those about to be in the list */
    bool host_thread;             /* there is one that calls them */
    pthread_mutex_t captures_mutex;
    struct capture *captures;
    struct event *markers[SIM_GPUS][SIM_QUEUE_DEPTH]; /* events in the queue, by position */
    uint64_t followed[SIM_GPUS][SIM_LANES];           /* of default streams (queue.h) */
    atomic_uint_fast64_t numbers;                     /* last number given to an object */
    atomic_uint lanes;                                /* how many streams were made */
};

/* This process's driver; CUDA_ERROR_NOT_INITIALIZED before cuInit. */
CUresult driver_get(struct driver **out);

/* From now on this thread's calls are not permitted, or are again. */
void driver_forbid(bool forbidden);

/* The driver and a device of it. */
CUresult driver_device(CUdevice device, struct driver **driver, const struct sim_gpu **gpu);

/* The driver and the calling thread's current context; CUDA_ERROR_INVALID_CONTEXT without one. */
CUresult driver_context(struct driver **driver, struct context **context);

/* The version the installed driver speaks; works without cuInit. */
int driver_cuda_version(void);

/* The calling thread's current context, or NULL. Of a green one the primary context, which has its
 * memory. */
struct context *context_current(struct driver *driver);

/* A number no other object of this process has. Any thread. */
uint64_t driver_number(struct driver *driver);

#endif
