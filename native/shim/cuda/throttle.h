/* Hold a launch until the container may have the GPU time for it. */
#ifndef SHIM_CUDA_THROTTLE_H
#define SHIM_CUDA_THROTTLE_H

#include "cuda/process.h"

/* A launch: of which function and shape, and in which stream. */
struct launch {
    CUfunction function;
    uint64_t blocks;
    uint64_t threads;
    CUstream stream;
    /* Set by throttle_begin(): */
    struct process *process; /* NULL: not limited */
    bool timed;
    unsigned device;
    uint64_t paid_ns;
};

/* May this process launch without asking? The way of a process without compute limit. */
bool throttle_idle(void);

/* Wait, pay, and begin to measure if it is time to. On an error the launch must not be made.
 * The wait is bounded and holds no lock, so that kernels that wait for each other come together. */
CUresult throttle_begin(struct launch *launch);

/* The driver has answered. Returns its answer. */
CUresult throttle_end(struct launch *launch, CUresult result);

#endif
