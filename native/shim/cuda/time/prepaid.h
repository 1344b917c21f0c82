/* The way of most launches: from what the thread has paid for already, and without a call.
 *
 * For the functions that programs launch with a hundred thousand times a second. What stands here
 * is what such a launch costs more than one without limit, so nothing that can be looked up later
 * does.
 */
#ifndef SHIM_CUDA_TIME_PREPAID_H
#define SHIM_CUDA_TIME_PREPAID_H

#include "cuda/launch/capturing.h"
#include "cuda/time/allowance.h"
#include "cuda/time/collective.h"
#include "cuda/time/throttle.h"

/* Inlined, so that the thread's allowance is found by one call and no other is made. */
#define PREPAID_INLINE inline __attribute__((always_inline))

/* What begin and end of a launch that was paid for by other means are; and whose it is. */
CUresult throttle_begin_slowly(struct launch *launch, uint64_t key);
CUresult throttle_end_slowly(struct launch *launch, CUresult result);

/* Is this the device that the thread's allowance is of? */
static inline bool prepaid_device(struct process *process)
{
    int device;
    if (process->session.config->device_count == 1) /* asking costs more than all the rest */
        return allowance.device == 0;
    return process_current(process, &device) == CUDA_SUCCESS && device == (int)allowance.device;
}

static PREPAID_INLINE struct process *prepaid_pay(const void *function, uint64_t key,
                                                  uint64_t *paid_ns)
{
    struct process *process = process_known();
    if (process == NULL || capture_may_be_on(process))
        return NULL;
    if (collective_any(process) && collective_has(process, function)) /* each is counted */
        return NULL;
    uint64_t estimate = cost_at_home(&process->costs, key);
    if (estimate == 0 && !cost_estimate(&process->costs, key, &estimate))
        return NULL;
    *paid_ns = allowance_price(estimate);
    if (!allowance_covers(process, *paid_ns) || !prepaid_device(process))
        return NULL;
    allowance_pay(*paid_ns);
    return process;
}

/* As throttle_begin() and throttle_end(). */
static PREPAID_INLINE CUresult prepaid_begin(struct launch *launch)
{
    uint64_t key = cost_key((uintptr_t)launch->function, launch->blocks, launch->threads);
    launch->flight = NULL;
    launch->first = false; /* what it costs is known */
    launch->turned = NULL;
    launch->process = prepaid_pay(launch->function, key, &launch->paid_ns);
    return launch->process == NULL ? throttle_begin_slowly(launch, key) : CUDA_SUCCESS;
}

static inline CUresult prepaid_end(struct launch *launch, CUresult result)
{
    bool slowly = launch->first || launch->turned != NULL ||
                  (launch->process != NULL && (launch->flight != NULL || result != CUDA_SUCCESS));
    return slowly ? throttle_end_slowly(launch, result) : result;
}

#endif
