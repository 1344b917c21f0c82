/* Making and ending contexts. */
#ifndef SIM_CUDA_CONTEXT_H
#define SIM_CUDA_CONTEXT_H

#include "cuda/driver.h"

/* Fill `context` in, on a valid device; the first of this process there takes memory. */
CUresult context_open(struct driver *driver, struct context *context, CUdevice device,
                      unsigned flags);

/* Wait for the device, free what was allocated or loaded in the context, mark it destroyed. No lock
 * held. */
void context_close(struct driver *driver, struct context *context);

#endif
