/* How a watched launch is watched no more. All with the flight held, which is then free. */
#ifndef SHIM_CUDA_TIME_LANDING_H
#define SHIM_CUDA_TIME_LANDING_H

#include "cuda/process.h"

/* It is done, or was never begun. With its context current, if it has events. */
void completion_end(struct process *process, struct flight *flight);

/* The driver would not: once may be a context that is going, more often is the stream
 * (core/time/unmeasured.h). */
void completion_fail(struct process *process, struct flight *flight);

/* It is left alone, and its events to their context, which may be gone. */
void completion_leave(struct process *process, struct flight *flight);

#endif
