/* GPU time, computed instead of spent: nothing runs, everything has an end.
 *
 * Between processes: time slices. Processes with work for the SMs have the GPU in turn, round robin
 * by slot, for driver.slice_ns each (2 ms unless it says otherwise). One that has nothing left to
 * run yields at once. One that is alone gets one slice after another; a process that comes later
 * waits until the current slice ends, as on an H100. After a pause of all a new slice begins.
 * Whenever another process than the last gets the GPU, nothing runs for driver.switch_ns; the slice
 * begins after that. Within a process: work.h.
 *
 * Nobody advances the timeline in the background; whoever looks at it first settles the past up to
 * now. A host that is late therefore delays its own next launch and never distorts what was
 * received. Whose turn is next is decided when time moves on, not when work ends: a process that
 * queues more at the very moment its last work ends keeps its turn.
 *
 * GPUs know nothing of one another, but for collectives (collective.h): while there are any, what
 * happens on all of them is settled in the order in which it happens.
 *
 * What it is not: see docs/simulated-gpu.md.
 */
#ifndef SIM_CORE_TIMELINE_H
#define SIM_CORE_TIMELINE_H

#include "core/state.h"
#include "core/task.h"

/* Settle the past of one GPU, or of all. */
void timeline_advance(struct sim_state *state, unsigned gpu, uint64_t now);
void timeline_settle(struct sim_state *state, uint64_t now);

/* Before a process's first work on a GPU: see that the memory for it is there, so that no page
 * fault on a file falls between two launches. */
void timeline_prepare(struct sim_state *state, const struct sim_process *process, unsigned gpu);

/* Queue work. 0 and its position, or -EAGAIN when the queue is full, or for a collective too many
 * are under way. The GPU must be settled up to now. */
int timeline_submit(struct sim_state *state, struct sim_process *process, unsigned gpu,
                    const struct sim_task *task, uint64_t *position);

/* Open a gate, which has not been opened. The GPU must be settled up to now. */
void timeline_open(struct sim_state *state, struct sim_process *process, unsigned gpu,
                   uint64_t position);

/* Has the work ended, as far as the GPU is settled? */
bool timeline_reached(const struct sim_state *state, const struct sim_process *process,
                      unsigned gpu, struct sim_reach reach);

/* When to look again: a time that is not after the end of that work, and after the time up to which
 * the GPU is settled; behind a function of the host 20 us later. For plain sequences of kernels,
 * this process's and its competitors', that need not share the SMs it is the end, as far as
 * REAP_PERIOD_NS ahead: a competitor may die. */
uint64_t timeline_predict(const struct sim_state *state, const struct sim_process *process,
                          unsigned gpu, struct sim_reach reach);

/* When the work at a position ended; 0 before. It is still in the queue's memory. */
uint64_t timeline_end(const struct sim_state *state, const struct sim_process *process,
                      unsigned gpu, uint64_t position);

/* The process's first turn that ended after that time, as far as turns are remembered; NULL if none
 * did. */
const struct sim_turn *timeline_turn(const struct sim_state *state,
                                     const struct sim_process *process, unsigned gpu,
                                     uint64_t after_ns);

/* The lane of the work at such a position. */
unsigned timeline_lane(const struct sim_state *state, const struct sim_process *process,
                       unsigned gpu, uint64_t position);

/* How long a process has the GPU if others want it. */
static inline uint64_t timeline_slice(const struct sim_state *state)
{
    return state->machine.driver.slice_ns != 0 ? state->machine.driver.slice_ns : SIM_SLICE_NS;
}

/* May a function of the host begin that was queued there? Then tell when it has ended. The GPU must
 * be settled up to now. */
bool timeline_host_begun(const struct sim_state *state, const struct sim_process *process,
                         unsigned gpu, unsigned lane, uint64_t position);
void timeline_host_ended(struct sim_state *state, const struct sim_process *process, unsigned gpu,
                         unsigned lane);

/* A process is gone, and what it had queued with it. The GPUs must be settled. */
void timeline_forget(struct sim_state *state, const struct sim_process *process);

#endif
