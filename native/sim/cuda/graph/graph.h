/* Graphs: nodes with edges between them, executable copies, and work captured from streams.
 *
 * A graph is one thread's at a time, as the interface demands, so nothing here locks but captures
 * (driver->captures_mutex, taken before driver->mutex) and memory (driver->mutex).
 */
#ifndef SIM_CUDA_GRAPH_GRAPH_H
#define SIM_CUDA_GRAPH_GRAPH_H

#include "cuda/driver.h"
#include "cuda/graph/api.h"
#include "cuda/graph/memory.h"

struct node_set {
    struct node **items;
    size_t count;
    size_t capacity;
};

/* A kernel's parameters are taken at once; of them the simulator knows the first, if it spins. */
struct kernel_work {
    struct kernel_params params;
    uint64_t duration_ns;
    uint64_t first;
    void *pointer_to_first;
};

/* Graphs of which one runs, owned, by a value (graph/conditional.h). */
struct conditional_work {
    int type;
    unsigned size;
    unsigned value;
    struct graph **bodies;
};

/* original: number of the node this is a copy of. twin: used while copying. */
struct node {
    uint32_t kind;
    enum node_type type;
    struct graph *graph;
    uint64_t number;
    uint64_t original;
    struct node *twin;
    struct node_set needs;
    bool disabled;
    bool placed;
    struct alloc_params alloc;
    union {
        struct kernel_work kernel;
        struct copy_params copy;
        struct fill_params fill;
        struct host_params host;
        struct graph *child; /* owned */
        struct event *event;
        struct conditional_work conditional;
        struct memory_batch memory; /* operations: owned */
        struct graph_block *block;  /* referenced; of alloc and free nodes */
    };
};

/* references: its user, while it is not destroyed, and its executable copies. */
struct graph {
    uint32_t kind;
    uint64_t number;
    uint64_t original;
    struct node_set nodes;
    unsigned references;
    unsigned execs;
    struct held_object *held; /* user objects */
};

struct exec {
    uint32_t kind;
    uint64_t flags;
    struct graph *source;         /* referenced */
    struct graph *graph;          /* a copy, owned */
    struct node_set order;        /* a node after all it needs */
    uint64_t footprint[SIM_GPUS]; /* memory it is mapped to, by device, in use */
    struct sim_reach busy;        /* until this work is done, of its last launch */
    uint64_t stream;              /* in the stream of this number */
    int ran_on;                   /* on this device */
    struct exec *next;
};

int node_set_add(struct node_set *set, struct node *node);
bool node_set_has(const struct node_set *set, const struct node *node);
void node_set_clear(struct node_set *set);

/* Is `earlier` one of `set`, or needed by one of them, however indirectly? */
bool node_set_follows(const struct node_set *set, const struct node *earlier);

static inline bool is_graph(const struct graph *graph)
{
    return graph != NULL && graph->kind == GRAPH;
}

static inline bool is_node(const struct node *node)
{
    return node != NULL && node->kind == NODE;
}

static inline bool is_exec(const struct exec *exec)
{
    return exec != NULL && exec->kind == EXEC;
}

struct graph *graph_new(struct driver *driver);

/* Drop a reference; with the last one go nodes and all. */
void graph_release(struct driver *driver, struct graph *graph);

/* A deep copy, or NULL. */
struct graph *graph_copy(struct driver *driver, const struct graph *graph);

/* Does it, or a graph inside it, allocate or free? */
bool graph_has_memory(const struct graph *graph);

/* What every function begins with that adds a node: its arguments are right. */
CUresult graph_add_check(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs, size_t count,
                         struct driver **driver);

/* Add a node like `prototype` after those in `needs`; it becomes the owner of what that holds. */
CUresult graph_add(struct driver *driver, struct graph *graph, const struct node *prototype,
                   CUgraphNode const *needs, size_t count, CUgraphNode *out);

/* The node of `graph` that is the copy of `original`; NULL for none. */
struct node *graph_twin(const struct graph *graph, const struct node *original);

/* All nodes, each after what it needs; CUDA_ERROR_INVALID_VALUE for a circle. */
CUresult graph_order(const struct graph *graph, struct node_set *order);

/* Fill in a prototype; each checks its parameters. */
CUresult node_of_kernel(const struct kernel_params *params, struct node *out);
CUresult node_of_copy(const struct copy_params *params, struct node *out);
CUresult node_of_fill(const struct fill_params *params, struct node *out);
CUresult node_of_alloc(struct driver *driver, struct graph *graph, CUgraphNode const *needs,
                       size_t count, struct alloc_params *params, struct node *out);
CUresult node_of_free(struct driver *driver, const struct graph *graph, CUdeviceptr address,
                      struct node *out);
void node_release(struct driver *driver, struct node *node);

/* Run the graph's own work, memory nodes included, in a stream. */
CUresult exec_launch(struct driver *driver, struct exec *exec, CUstream handle);

/* What the runner of a node does, and the work it is for the device; transfer.c, fill.c. */
CUresult copy_run(struct driver *driver, int device, const struct copy_params *params,
                  struct sim_task *out);
CUresult fill_run(struct driver *driver, int device, const struct fill_params *params,
                  struct sim_task *out);

#endif
