/* The sample periods of NVML's utilisation: what was counted in one shows when it has ended.
 *
 * What is told of processes depends on the driver's `samples`.
 *
 * SIM_SAMPLES_EVERY_PROCESS: each process's own part of the latest period in which it had any.
 *
 * SIM_SAMPLES_ONE_PROCESS, as NVIDIA's kernel modules keep it (ctrl2080perf.h,
 * NV2080_CTRL_PERF_GPUMON_ENGINE_UTIL_SAMPLE): a sample has the percentage of the period in which
 * the engine was busy, with anybody's work, and names one process, "that was active on the engine
 * when the sample was taken". Here that is the process that had the GPU then, or had it last: its
 * state is still there, and one that works alone at 30 % is told 30 %. An idle period names none. A
 * ring has the last 72 samples. A reader is told, of each process that a sample since its last
 * question names: the stamp of the last of these, and the sum of their percentages divided by the
 * number of all samples since. Example: in two new samples the engine was always busy, the first
 * names A, the second B: A is told 50 % with the first stamp, B 50 % with the second. Never do two
 * processes have one stamp.
 *
 * When in its period a sample is taken is drawn anew for each: time slices are regular, on a
 * virtual clock exactly so, and a fixed instant would meet the same process again and again. It is
 * drawn by a hash of the period's beginning, so that a run on a virtual clock can be repeated.
 */
#ifndef SIM_CORE_PERIOD_H
#define SIM_CORE_PERIOD_H

#include "core/state.h"

#define SAMPLE_PERIOD_NS UINT64_C(166666667) /* a sixth of a second */

/* When the current period ends. */
static inline uint64_t period_end(const struct sim_timeline *timeline)
{
    return timeline->period_start_ns + SAMPLE_PERIOD_NS;
}

/* The GPU's clock is about to move to `until`, which is not after the period's end while anything
 * runs. Nobody else gets the GPU before. */
void period_sample(struct sim_state *state, unsigned gpu, uint64_t until);

/* End the current period: what was counted becomes what NVML shows. */
void period_publish(struct sim_state *state, unsigned gpu);

/* Move the clock of a GPU on which nothing runs to `now`. */
void period_pass_idle(struct sim_state *state, unsigned gpu, uint64_t now);

/* A process is about to be cleared: its samples stay. */
void period_forget(struct sim_state *state, const struct sim_process *process, unsigned gpu);

/* The latest period in which the process used the GPU: percent, and when it ended. For none among
 * the last SIM_SAMPLES: 0, and when the last one ended. */
unsigned period_latest(const struct sim_state *state, const struct sim_process *process,
                       unsigned gpu, uint64_t *ended_ns);

/* What NVML tells of samples that ended after `after_ns`, of processes that the caller has a pid
 * for: SIM_PROCESSES rows at most. */
unsigned period_utilization(struct sim_state *state, unsigned gpu, uint64_t after_ns,
                            struct sim_utilization out[SIM_PROCESSES]);

#endif
