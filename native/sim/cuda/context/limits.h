/* What a launch takes for the stacks of all threads that the GPU can hold. */
#ifndef SIM_CUDA_CONTEXT_LIMITS_H
#define SIM_CUDA_CONTEXT_LIMITS_H

#include "cuda/driver.h"

/* Before a launch of a kernel that needs `local` bytes for each thread by itself.
 * CUDA_ERROR_OUT_OF_MEMORY if the GPU has no room for that. Takes driver->mutex. */
CUresult limits_launch(struct driver *driver, struct context *context, uint64_t local);

#endif
