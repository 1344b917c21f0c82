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

enum operation_kind {
    WAIT_32 = 1,
    WRITE_32 = 2,
    FLUSH_REMOTE_WRITES = 3,
    WAIT_64 = 4,
    WRITE_64 = 5,
    BARRIER = 6,
};

/* An operation that waits, or comes after one in its lane that does. position: of its gate. */
struct pending {
    struct pending *next;
    struct memory_operation operation;
    bool on_device;
    int device;
    unsigned lane;
    uint64_t position;
};

static inline bool memory_is_wait(const struct memory_operation *operation)
{
    return operation->kind == WAIT_32 || operation->kind == WAIT_64;
}

static inline bool memory_is_write(const struct memory_operation *operation)
{
    return operation->kind == WRITE_32 || operation->kind == WRITE_64;
}

/* Open the gates whose conditions hold. No lock held. */
void stream_memory_look(struct driver *driver, int device);

/* Open all of them: the device's work is to end. */
void stream_memory_abandon(struct driver *driver, int device);

/* CUDA_ERROR_INVALID_VALUE, or CUDA_ERROR_NOT_SUPPORTED. Takes driver->mutex. */
CUresult stream_memory_check(struct driver *driver, const struct memory_batch *batch);

/* Is it done at once, with nothing before it in its lane? If not, append() puts it behind all
 * others. */
bool memory_operation_done_now(struct driver *driver, struct pending *wanted);
CUresult memory_operation_append(struct driver *driver, const struct pending *wanted);

/* Do them in a stream, in their order; they are checked. */
CUresult stream_memory_run(struct driver *driver, struct stream *stream, int device,
                           const struct memory_batch *batch);

/* A copy of the operations, for a node. */
CUresult stream_memory_copy(const struct memory_batch *from, struct memory_batch *out);

#endif
