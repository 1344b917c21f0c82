/* How much memory a graph needs when it is launched. */
#ifndef SHIM_CUDA_GRAPH_NEED_H
#define SHIM_CUDA_GRAPH_NEED_H

#include "cuda/process.h"

/* Drivers take physical memory for graphs in pieces: no larger than the one, no smaller than the
 * other. */
#define GRAPH_COARSE (UINT64_C(32) << 20)
#define GRAPH_FINE (UINT64_C(2) << 20)

/* Upper bounds by device, with pieces of either size. */
struct graph_need {
    uint64_t coarse[VCUDA_DEVICES];
    uint64_t fine[VCUDA_DEVICES];
    bool any;
    bool keeps;      /* allocates what it does not free */
    bool foreign;    /* allocates on a device that is not granted */
    bool collective; /* one of its kernels is (collective.h) */
};

/* Look through a graph and those inside it. The addresses of all its allocations are fixed, and
 * those that are never there at once may share them: what they cover together is all that a launch
 * can need. CUDA_ERROR_OUT_OF_MEMORY when it cannot be told, or an error of the driver. */
CUresult graph_need_of(struct process *process, CUgraph graph, struct graph_need *need);

/* The larger of two in everything. */
void graph_need_raise(struct graph_need *need, const struct graph_need *other);

#endif
