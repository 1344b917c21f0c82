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
        if (throttle_limited(&config->limits[device]))
            return false;
    return true;
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
