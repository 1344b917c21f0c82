/* Streams in which memory is given back to the driver: pools' by what was freed there, graphs' by
 * what runs there. Before a request is refused their work is waited for, as drivers make the stream
 * wait that asks (CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES). A dependency would not do
 * here: it would cover what was launched after the free, too, which may wait for this thread.
 */
#ifndef SHIM_CUDA_MEMORY_STREAMS_H
#define SHIM_CUDA_MEMORY_STREAMS_H

#include "cuda/process.h"

/* Memory is given back in the order of this stream, by pool_stream_key(). */
void streams_note(struct process *process, uint64_t stream);

/* Wait, but not for ever, for what such streams of a device have been given so far. Returns whether
 * there may be any, so that a request is worth another try. Inside of a hook, while no memory
 * moves. */
bool streams_wait(struct process *process, unsigned device);

/* A context ended, and its streams with it. */
void streams_forget(struct process *process);

#endif
