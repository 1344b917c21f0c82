/* Who holds how much memory. Exactly the bytes it is called with are charged; how the driver rounds
 * is the caller's matter (cuda/memory/taken.h). What the driver keeps for itself is nobody's. */
#ifndef SIM_CORE_LEDGER_H
#define SIM_CORE_LEDGER_H

#include "core/state.h"

/* 0, or -ENOMEM when the GPU's physical memory is exhausted; that is counted as refused. */
int ledger_charge(struct sim_state *state, struct sim_process *process, unsigned gpu,
                  uint64_t bytes, uint64_t now);
void ledger_release(struct sim_process *process, unsigned gpu, uint64_t bytes);

/* Take over what another process has just released: no room is asked for. */
void ledger_inherit(struct sim_process *process, unsigned gpu, uint64_t bytes);

/* What one store of a process holds changes from `from` to `to` bytes; 0 or -ENOMEM as above. */
int ledger_resize(struct sim_state *state, struct sim_process *process, unsigned gpu, uint64_t from,
                  uint64_t to, uint64_t now);

/* What the driver takes by itself: counted as the process's bytes, but as no allocation. */
int ledger_take(struct sim_state *state, struct sim_process *process, unsigned gpu, uint64_t bytes,
                uint64_t now);
void ledger_give(struct sim_process *process, unsigned gpu, uint64_t bytes);

/* Each context takes memory: a process's first on a GPU what the model says, a further one a
 * quarter of it, since they share the code. */
int ledger_open_context(struct sim_state *state, struct sim_process *process, unsigned gpu,
                        uint64_t now);
void ledger_close_context(struct sim_state *state, struct sim_process *process, unsigned gpu);

/* Bytes that processes can hold together: the card's, less what the driver keeps. */
uint64_t ledger_capacity(const struct sim_state *state, unsigned gpu);

/* Bytes all processes together hold. */
uint64_t ledger_used(const struct sim_state *state, unsigned gpu);
uint64_t ledger_used_by_tenant(const struct sim_state *state, unsigned gpu, uint32_t tenant);

#endif
