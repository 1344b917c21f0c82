/* The part of the API that is about graphs: parameters of nodes, result codes, constants. Our own
 * declarations of what is documented. */
#ifndef SIM_CUDA_GRAPH_API_H
#define SIM_CUDA_GRAPH_API_H

#include "cuda/api.h"

typedef struct graph *CUgraph;
typedef struct node *CUgraphNode;
typedef struct exec *CUgraphExec;
typedef void (*CUhostFn)(void *);

enum {
    ERROR_CAPTURE_UNSUPPORTED = 900,
    ERROR_CAPTURE_INVALIDATED = 901,
    ERROR_CAPTURE_MERGE = 902,
    ERROR_CAPTURE_UNMATCHED = 903,
    ERROR_CAPTURE_UNJOINED = 904,
    ERROR_CAPTURE_ISOLATION = 905,
    ERROR_CAPTURE_IMPLICIT = 906,
    ERROR_CAPTURED_EVENT = 907,
    ERROR_CAPTURE_WRONG_THREAD = 908,
    ERROR_EXEC_UPDATE = 910,
};

enum node_type {
    NODE_KERNEL = 0,
    NODE_COPY = 1,
    NODE_FILL = 2,
    NODE_HOST = 3,
    NODE_CHILD = 4,
    NODE_EMPTY = 5,
    NODE_WAIT = 6,
    NODE_RECORD = 7,
    NODE_ALLOC = 10,
    NODE_FREE = 11,
    NODE_MEMORY = 12,
    NODE_CONDITIONAL = 13,
    NODE_TYPES,
};

enum { EXEC_AUTO_FREE = 1, EXEC_UPLOAD = 2, EXEC_FLAGS = 15 };
enum { CAPTURE_NONE, CAPTURE_ACTIVE, CAPTURE_INVALID };
enum { MODE_GLOBAL, MODE_THREAD_LOCAL, MODE_RELAXED };

/* Of edges; nothing but ordinary ones is simulated. */
struct edge_data {
    unsigned char from_port, to_port, type, reserved[5];
};

struct kernel_params_v1 {
    CUfunction function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
    void **parameters;
    void **extra;
};

struct kernel_params {
    struct kernel_params_v1 v1;
    CUkernel kernel;
    CUcontext context;
};

/* CUDA_MEMCPY3D: where a block of bytes is on one side, and its extent. */
struct copy_side {
    size_t x_bytes, y, z, level;
    int memory; /* 1 host, 2 device, 3 array, 4 unified */
    void *host;
    CUdeviceptr device;
    void *array;
    void *reserved;
    size_t pitch, height;
};

struct copy_params {
    struct copy_side from, to;
    size_t width_bytes, height, depth;
};

struct copy_node_params {
    int flags, reserved;
    CUcontext context;
    struct copy_params copy;
};

struct fill_params {
    CUdeviceptr to;
    size_t pitch;
    unsigned value, element;
    size_t width, height;
};

struct host_params {
    CUhostFn call;
    void *data;
};

/* ownership: 0 the graph is copied, 1 it is moved into the node (as drivers since 12.9 know) */
struct child_params {
    CUgraph graph;
    int ownership;
};

/* CUstreamBatchMemOpParams. barrier: the flags of a barrier. */
struct memory_operation {
    int kind;
    unsigned barrier;
    CUdeviceptr address;
    uint64_t value;
    unsigned flags;
    CUdeviceptr alias;
    uint64_t pad;
};

struct memory_batch {
    CUcontext context;
    unsigned count;
    struct memory_operation *operations;
    unsigned flags;
};

/* bodies: the driver's array, told to the program. */
struct conditional_params {
    uint64_t handle;
    int type;
    unsigned size;
    CUgraph *bodies;
    CUcontext context;
};

struct pool_properties {
    int allocation, handles;
    struct {
        int type, id;
    } location;
    void *security;
    size_t most;
    unsigned char rest[56];
};

struct alloc_params {
    struct pool_properties pool;
    const void *access;
    size_t access_count;
    size_t bytes;
    CUdeviceptr address;
};

struct node_params {
    int type, reserved[3];
    union {
        struct kernel_params kernel;
        struct copy_node_params copy;
        struct fill_params fill;
        struct host_params host;
        struct child_params child;
        CUevent event;
        struct alloc_params alloc;
        CUdeviceptr address;
        struct conditional_params conditional;
        struct memory_batch memory;
        unsigned char bytes[232];
    };
    long long last;
};

struct instantiate_params {
    uint64_t flags;
    CUstream upload_stream;
    CUgraphNode error_node;
    int result;
};

struct update_result {
    int result;
    CUgraphNode node, from;
};

_Static_assert(sizeof(struct kernel_params_v1) == 56, "as the interface has it");
_Static_assert(sizeof(struct kernel_params) == 72, "as the interface has it");
_Static_assert(sizeof(struct copy_params) == 200, "as the interface has it");
_Static_assert(sizeof(struct copy_node_params) == 216, "as the interface has it");
_Static_assert(sizeof(struct fill_params) == 40, "as the interface has it");
_Static_assert(sizeof(struct alloc_params) == 120, "as the interface has it");
_Static_assert(sizeof(struct memory_operation) == 48, "as the interface has it");
_Static_assert(sizeof(struct node_params) == 256, "as the interface has it");

#endif
