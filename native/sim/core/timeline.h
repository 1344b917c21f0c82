/* GPU time, computed instead of spent: nothing runs, everything has an end.
 *
 * Each process has one queue per GPU, worked off in order. Processes with work pending share the
 * GPU equally at every instant (the ideal of the short time slices a real GPU gives them in turn):
 * with n of them each proceeds at 1/n. Nobody advances the timeline in the background; whoever
 * looks at it first settles the past up to now. A host that is late therefore delays its own next
 * launch and never distorts what was received.
 */
#ifndef SIM_TIMELINE_H
#define SIM_TIMELINE_H

#include "core/state.h"

#define SAMPLE_PERIOD_NS UINT64_C(166666667) /* of NVML's utilisation: a sixth of a second */

/* Settle the past of one GPU, or of all. */
void timeline_advance(struct sim_state *state, unsigned gpu, uint64_t now);
void timeline_settle(struct sim_state *state, uint64_t now);

/* Queue work of `duration_ns` (0: a marker, such as an event). 0 and its position, or -EAGAIN when
 * the queue is full. The GPU must be settled up to `now`. */
int timeline_submit(struct sim_state *state, struct sim_process *process, unsigned gpu,
                    uint64_t duration_ns, uint64_t now, uint64_t *position);

/* When the work at `position` will have ended if nothing is added. */
uint64_t timeline_predict(const struct sim_state *state, const struct sim_process *process,
                          unsigned gpu, uint64_t position);

/* When the work at a position that is completed and still in the queue's memory ended. */
uint64_t timeline_end(const struct sim_state *state, const struct sim_process *process,
                      unsigned gpu, uint64_t position);

#endif
