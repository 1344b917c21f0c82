/* Kernels that wait for kernels of other processes or GPUs: collectives of NCCL and their like.
 *
 * While one rank's launch is held back, those of all others spin on their GPUs and pay for it. So
 * such launches are charged and not held back; GPU time that is owed for one is paid at the next
 * ordinary launch. They are known by their names, by which programs ask the driver for them; a
 * graph that contains one is treated alike. Looked up only when a launch is about to wait.
 */
#ifndef SHIM_CUDA_COLLECTIVE_H
#define SHIM_CUDA_COLLECTIVE_H

#include "cuda/process.h"

/* Is the function, kernel or executable graph with this handle one? Any thread. */
bool collective_has(struct process *process, const void *handle);

/* From now on it is, or is not. */
void collective_set(struct process *process, const void *handle, bool waits);

/* Is this node of a graph one? Calls the driver. */
bool collective_node(struct process *process, CUgraphNode node);

#endif
