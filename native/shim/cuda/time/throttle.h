/* Hold a launch until the container may have the GPU time for it. */
#ifndef SHIM_CUDA_TIME_THROTTLE_H
#define SHIM_CUDA_TIME_THROTTLE_H

#include "cuda/process.h"

#define NOT_INLINE __attribute__((noinline))

/* A launch: of which function and shape, and in which stream. */
struct launch {
    CUfunction function;
    uint64_t blocks;
    uint64_t threads;
    CUstream stream;
    const CUlaunchConfig *config; /* NULL if it has none */
    /* Set by throttle_begin(): */
    struct process *process; /* NULL: not limited */
    struct flight *flight;   /* that watches it, or NULL */
    bool first;              /* of its function: the driver may take memory for it */
    struct process *turned;  /* it goes in a turn of this process, which is to be told; or NULL */
    bool collective;
    uint64_t began_ns;
    unsigned device;
    uint64_t paid_ns;
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

/* The same for a function that was launched before. A first launch goes the long way, for a module
 * that is loaded lazily takes its memory there, as does a kernel that needs more local memory. */
static inline bool throttle_passes(CUfunction function)
{
    return throttle_idle() && throttle_launched(process_known(), function);
}

/* Wait, pay, and begin to measure if it is time to. On an error the launch must not be made.
 * The wait is bounded and holds nothing: kernels that wait for each other come together, and a
 * thread that leaves it by a jump, or is cancelled, leaves nothing behind. */
CUresult throttle_begin(struct launch *launch);

/* The driver has answered. Returns its answer. */
CUresult throttle_end(struct launch *launch, CUresult result);

/* The program is going to wait for the GPU. Returns when that began; 0: nobody else is there, so
 * that it is of no interest. */
uint64_t throttle_wait(void);

/* It has waited for this stream (pool_stream_key(), or GAP_ANY for all): what was watched is
 * probably done. */
void throttle_waited(uint64_t begun, uint64_t stream);

#endif
