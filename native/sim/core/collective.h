/* Kernels on several GPUs, or of several processes, that wait for one another, as NCCL's do: each
 * spins, and takes GPU time, until the last of its group has begun; then each takes its own length.
 * A kernel begins when its turn in its stream has come and its process has the GPU.
 *
 * The group is a number that its members agree on, and use once. If one of them never begins, the
 * others spin for ever, also where it had a process that died.
 *
 * While there is any, what happens on all GPUs is settled in order (timeline.c).
 */
#ifndef SIM_CORE_COLLECTIVE_H
#define SIM_CORE_COLLECTIVE_H

#include "core/state.h"
#include "core/task.h"

/* Is there a place for one more of that group? */
bool collective_has_place(const struct sim_state *state, const struct sim_task *task);

/* One more of it is queued, for which there is a place. Returns where. */
uint32_t collective_join(struct sim_state *state, const struct sim_task *task);

/* One of them has begun; the last one lets all go on. */
void collective_begin(struct sim_state *state, uint32_t collective);

bool collective_complete(const struct sim_state *state, uint32_t collective);

/* One of them has ended, or never will. */
void collective_leave(struct sim_state *state, uint32_t collective);

#endif
