/* Kernels that wait for kernels of other processes or GPUs: collectives of NCCL and their like.
 *
 * What that means for when they go: native/arbiter/core/gang.h. They are known by their names, by
 * which programs ask the driver for them; a graph that contains one is treated alike.
 */
#ifndef SHIM_CUDA_TIME_COLLECTIVE_H
#define SHIM_CUDA_TIME_COLLECTIVE_H

#include "cuda/process.h"

/* Has the process any? */
static inline bool collective_any(struct process *process)
{
    return atomic_load_explicit(&process->collective_count, memory_order_relaxed) > 0;
}

/* Is the function, kernel or executable graph with this handle one? Any thread. */
bool collective_has(struct process *process, const void *handle);

/* From now on it is, or is not. */
void collective_set(struct process *process, const void *handle, bool waits);

/* Is this node of a graph one? Calls the driver. */
bool collective_node(struct process *process, CUgraphNode node);

#endif
