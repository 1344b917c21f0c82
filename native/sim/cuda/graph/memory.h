/* Memory of graphs: addresses that are fixed when a node is made, and the memory behind them.
 *
 * A block is a range of addresses. Physical memory comes at the first launch or upload, in pieces
 * of GRAPH_QUANTUM, into one store per device. Graphs that cannot run at once share what no live
 * allocation has: those that are launched in one stream, and others once their work is done (CUDA
 * programming guide, "Graph Memory Nodes", physical memory management and sharing). Where the GPU
 * has no more, a graph shares with those that run in other streams, and waits for them. Memory
 * stays reserved when it is freed and when its graph is destroyed, until it is trimmed. All of what
 * is reserved is charged to the ledger. driver->mutex guards it all.
 */
#ifndef SIM_CUDA_GRAPH_MEMORY_H
#define SIM_CUDA_GRAPH_MEMORY_H

#include "cuda/driver.h"

#define GRAPH_QUANTUM UINT64_C(2097152)

/* references: nodes of graphs and of executable copies, and 1 while live. */
struct graph_block {
    CUdeviceptr start;
    uint64_t bytes; /* as asked */
    uint64_t size;  /* as reserved */
    int device;
    unsigned references;
    bool live;
    uint64_t graph;        /* number of the one that allocates it */
    struct node *freed_by; /* in that graph: after it, it may be allocated again */
};

struct exec;

CUresult block_new(struct driver *driver, int device, uint64_t bytes, struct graph_block **out);
void block_hold(struct driver *driver, struct graph_block *block);
void block_drop(struct driver *driver, struct graph_block *block);

/* The block that starts at an address, or NULL. */
struct graph_block *block_at(struct driver *driver, CUdeviceptr address);

/* An alloc or a free node ran, or the program freed it. Freeing what is not live is an error. */
void block_allocate(struct driver *driver, struct graph_block *block);
CUresult block_free(struct driver *driver, struct graph_block *block);

/* Free what an earlier launch has left; an error if there is something and it must not be so. */
CUresult graph_memory_restart(struct driver *driver, struct exec *exec);

/* Have memory for all blocks of `exec`, to run in this stream; CUDA_ERROR_OUT_OF_MEMORY. */
CUresult graph_memory_map(struct driver *driver, struct exec *exec, struct stream *stream,
                          int device);

/* The memory is in use until all that is queued now has run. */
void graph_memory_busy(struct driver *driver, struct exec *exec, const struct stream *stream,
                       int device);

/* Is gone: maps nothing any more. */
void graph_memory_unmap(struct driver *driver, struct exec *exec);

#endif
