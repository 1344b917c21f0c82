/* Making and ending contexts. */
#ifndef SIM_CUDA_CONTEXT_CONTEXT_H
#define SIM_CUDA_CONTEXT_CONTEXT_H

#include "cuda/driver.h"

/* Fill `context` in, on a valid device; the first of this process there takes memory. */
CUresult context_open(struct driver *driver, struct context *context, CUdevice device,
                      unsigned flags);

/* The current context as the program set it, which may be a green one's. */
struct context *context_set(const struct driver *driver);

/* The primary context where it is a green one, else itself. */
struct context *context_base(struct driver *driver, struct context *context);

/* CUDA_ERROR_INVALID_CONTEXT: the stack is full. */
CUresult context_push(const struct driver *driver, struct context *context);

/* It ends: is not the calling thread's current one any more. */
void context_leave(const struct driver *driver, const struct context *context);

/* Wait for the device, free what was allocated or loaded in the context, mark it destroyed. No lock
 * held. */
void context_close(struct driver *driver, struct context *context);

#endif
