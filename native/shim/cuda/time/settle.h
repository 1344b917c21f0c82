/* A measured launch has ended: what it cost, and what its kind is to pay from now on. */
#ifndef SHIM_CUDA_TIME_SETTLE_H
#define SHIM_CUDA_TIME_SETTLE_H

#include "cuda/process.h"

/* measured: what the events around it show. own: the part of that for which nothing else of ours
 * was charged (cuda/time/gpu_time.h). */
struct settle_times {
    uint64_t now, measured, own;
};

/* What it is believed to have cost; its kind is known to from now on. With the flight held. */
uint64_t settle_learn(struct process *process, const struct flight *flight,
                      struct settle_times times);

/* Correct what was paid for it, and by guess for others of its kind. */
void settle_charge(struct process *process, struct flight *flight, struct settle_times times,
                   uint64_t cost);

#endif
