/* The sample periods of NVML's utilisation: what was counted in one shows when it has ended. */
#ifndef SIM_PERIOD_H
#define SIM_PERIOD_H

#include "core/state.h"

#define SAMPLE_PERIOD_NS UINT64_C(166666667) /* a sixth of a second */

/* When the current period ends. */
static inline uint64_t period_end(const struct sim_timeline *timeline)
{
    return timeline->period_start_ns + SAMPLE_PERIOD_NS;
}

/* End the current period: what was counted becomes what NVML shows. */
void period_publish(struct sim_state *state, unsigned gpu);

/* Move the clock of a GPU on which nothing runs to `now`. */
void period_pass_idle(struct sim_state *state, unsigned gpu, uint64_t now);

/* The latest period in which the process used the GPU: percent, and when it ended. For none among
 * the last SIM_SAMPLES: 0, and when the last one ended. */
unsigned period_latest(const struct sim_state *state, const struct sim_process *process,
                       unsigned gpu, uint64_t *ended_ns);

#endif
