/* Who uses the simulated GPUs: processes, and the tenants (mount namespaces) they belong to. */
#ifndef SIM_CORE_PROCESS_H
#define SIM_CORE_PROCESS_H

#include "core/state.h"

/* Give the calling process a slot; what an earlier image of it (before exec) held is gone.
 * Returns 0, -ENOSPC, or -ESRCH where it cannot tell its own pid. */
int process_attach(struct sim_state *state, uint64_t now, struct sim_process **out);

/* False once the process is dead, a zombie, or runs another program; true when it cannot be told.
 */
bool process_alive(const struct sim_state *state, struct sim_process *process);

/* Free the slot; the GPUs' past is settled. */
void process_clear(struct sim_state *state, struct sim_process *process);

/* The account of the process's tenant on a GPU. */
struct sim_usage *process_usage(struct sim_state *state, const struct sim_process *process,
                                unsigned gpu);

#endif
