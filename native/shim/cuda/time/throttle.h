/* Hold a launch until its container may use the GPU. */
#ifndef SHIM_CUDA_TIME_THROTTLE_H
#define SHIM_CUDA_TIME_THROTTLE_H

#include "cuda/process.h"
#include "cuda/time/collective.h"

#define NOT_INLINE __attribute__((noinline))

/* A launch: of which function, and in which stream. */
struct launch {
    CUfunction function;
    CUstream stream;
    /* Set by throttle_begin(): */
    bool first;             /* of its function: the driver may take memory for it */
    struct process *turned; /* it goes in a turn of this process, which is to be told; or NULL */
    bool collective;
    uint64_t began_ns;
    unsigned device;
};

/* Is the GPU time of this device limited? */
static inline bool throttle_limited(const struct vcuda_limit *limit)
{
    return atomic_load_explicit(&limit->core_percent, memory_order_relaxed) < 100;
}

/* May this process launch without asking? The way of a process without compute limit, and so short
 * that it stands here: what a launch costs more than without us is this. */
static inline bool throttle_idle(void)
{
    const struct process *process = process_known();
    if (process == NULL)
        return false;
    enum session_phase phase = session_phase(&process->session);
    if (phase != SESSION_ATTACHED)
        return phase == SESSION_UNMANAGED;
    const struct vcuda_config *config = process->session.config;
    for (uint32_t device = 0; device < config->device_count; device++)
        if (throttle_limited(&config->limits[device]) &&
            !turns_free(&process->session.turns, device))
            return false;
    return true;
}

/* Which bit of the functions that were launched. Handles are 16 bytes apart, or more. */
static inline uint64_t throttle_launched_bit(CUfunction function)
{
    return ((uintptr_t)function >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 48;
}

static inline bool throttle_launched(const struct process *process, CUfunction function)
{
    uint64_t bit = throttle_launched_bit(function);
    return atomic_load_explicit(&process->launched.words[bit / 64], memory_order_relaxed) >>
               bit % 64 &
           1;
}

/* Has the thread credit for a launch in this stream? Then it is counted here, without a lock, a
 * clock or a call. The arbiter hears of each collective. */
static inline bool throttle_credited(CUfunction function, CUstream stream)
{
    if (!turn_credit_covers(stream))
        return false;
    struct process *process = process_known();
    if (!throttle_launched(process, function) ||
        (collective_any(process) && collective_has(process, function)))
        return false;
    turn_credit_use();
    return true;
}

/* May this launch go straight to the driver, and uncounted? A first launch of its function goes the
 * long way, for a module that is loaded lazily takes its memory there, as does a kernel that needs
 * more local memory. Without a call, so that a hook that asks can jump. */
static inline bool throttle_passes(CUfunction function)
{
    return throttle_idle() && throttle_launched(process_known(), function);
}

/* Wait for the turn. On an error the launch must not be made. The wait is bounded and holds
 * nothing: kernels that wait for each other come together, and a thread that leaves it by a jump,
 * or is cancelled, leaves nothing behind. */
CUresult throttle_begin(struct launch *launch);

/* The driver has answered. Returns its answer. */
CUresult throttle_end(struct launch *launch, CUresult result);

/* The program has waited for this stream (pool_stream_key(), or GAP_ANY for all). */
void throttle_waited(uint64_t stream);

#endif
