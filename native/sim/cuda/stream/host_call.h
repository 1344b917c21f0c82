/* Functions of the program that a stream calls: cuLaunchHostFunc, cuStreamAddCallback, host nodes.
 *
 * Each is a piece of work in its stream (SIM_HOST). A thread of the driver calls them one after
 * another, in the order in which they may begin; it lives while there are any. They may not use the
 * driver: what they call answers CUDA_ERROR_NOT_PERMITTED.
 */
#ifndef SIM_CUDA_STREAM_HOST_CALL_H
#define SIM_CUDA_STREAM_HOST_CALL_H

#include "cuda/stream/queue.h"

/* Queue a call in a stream. CUDA_ERROR_OUT_OF_MEMORY without a thread or memory for it. */
CUresult host_call_submit(struct driver *driver, struct stream *stream, int device,
                          void (*call)(void *), void *data);

/* Before bytes are moved for work in this stream, which is done when the call is made: wait until
 * functions that come before it have run, but no longer than a second. One that waits for what the
 * program does next would otherwise never return. */
void host_calls_wait(struct driver *driver, const struct stream *stream, int device);

#endif
