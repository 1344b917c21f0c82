/* Making streams, and asking what they belong to. */
#ifndef SIM_CUDA_STREAM_STREAM_H
#define SIM_CUDA_STREAM_STREAM_H

#include "cuda/stream/queue.h"

/* In a context, perhaps a green one. */
CUresult stream_new(struct driver *driver, struct context *context, unsigned flags, int priority,
                    CUstream *out);

/* The context of a stream, green or not, default streams' the current one; for a function that
 * writes to `out`. */
CUresult stream_context(CUstream handle, const void *out, struct context **context);

/* A priority within the range there is; greater numbers are lower priorities. */
int stream_priority(int wanted);

#endif
