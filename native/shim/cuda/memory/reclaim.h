/* Before a request is refused: what is held in reserve and by nobody in use goes back first. */
#ifndef SHIM_CUDA_MEMORY_RECLAIM_H
#define SHIM_CUDA_MEMORY_RECLAIM_H

#include "cuda/process.h"

/* Give back what this process keeps in reserve on a device. Is it worth another try? Inside of a
 * hook only. */
bool reclaim(struct process *process, unsigned device);

#endif
