/* Memory operations in streams: waiting for a value in memory, and writing one.
 *
 * A wait whose condition does not hold puts a gate into the stream (core/task.h) and is remembered;
 * every call that waits for work, asks after it or adds some looks whether it holds now, and opens
 * the gate. Nobody looks meanwhile. A write is done by the call that makes it, as copies are, but
 * behind such a wait in its stream: then when that is opened. */
#ifndef SIM_CUDA_STREAM_MEMORY_H
#define SIM_CUDA_STREAM_MEMORY_H

#include "cuda/graph/graph.h"
#include "cuda/stream/queue.h"

/* Open the gates whose conditions hold. No lock held. */
void stream_memory_look(struct driver *driver, int device);

/* Open all of them: the device's work is to end. */
void stream_memory_abandon(struct driver *driver, int device);

/* CUDA_ERROR_INVALID_VALUE, or CUDA_ERROR_NOT_SUPPORTED. Takes driver->mutex. */
CUresult stream_memory_check(struct driver *driver, const struct memory_batch *batch);

/* Do them in a stream, in their order; they are checked. */
CUresult stream_memory_run(struct driver *driver, struct stream *stream, int device,
                           const struct memory_batch *batch);

/* A copy of the operations, for a node. */
CUresult stream_memory_copy(const struct memory_batch *from, struct memory_batch *out);

#endif
