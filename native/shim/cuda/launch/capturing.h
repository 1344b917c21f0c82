/* Is a stream being captured, so that what is launched in it runs nothing and costs nothing?
 *
 * Only the driver knows of one stream: captures spread by events. But it is asked only while there
 * may be captures at all: those that this process has begun are counted, and leave the count only
 * when they are seen to end. A capture that went with its context or stream stays in the count,
 * which then costs a question for each launch and nothing else.
 */
#ifndef SHIM_CUDA_LAUNCH_CAPTURING_H
#define SHIM_CUDA_LAUNCH_CAPTURING_H

#include "cuda/process.h"

/* May any stream of this process be in a capture? One load, for the way of every launch.
 * Relaxed: a program that launches in what another thread captures has waited for that thread. */
static inline bool capture_may_be_on(const struct process *process)
{
    return atomic_load_explicit(&process->captures, memory_order_relaxed) > 0;
}

/* Does the driver say that this one is, or that it must not be asked (the legacy stream, during
 * another's capture)? Any thread. */
bool capture_has(CUstream stream);

/* Both: what a hook wants to know that has something to charge. */
static inline bool capture_is_on(const struct process *process, CUstream stream)
{
    return capture_may_be_on(process) && capture_has(stream);
}

#endif
