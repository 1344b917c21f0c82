/* What an observer may ask: each call takes the lock, removes the dead and settles the past first.
 * Nothing here needs to be called with the lock held, unless it says so, and nothing changes who
 * holds what.
 */
#ifndef SIM_CORE_ACCOUNT_H
#define SIM_CORE_ACCOUNT_H

#include "core/state.h"

/* A sample period that has ended, and in how much of it anything ran. */
struct sim_period {
    uint64_t ended_ns;
    unsigned percent;
};

/* Fill up to `capacity` entries; return how many there are. */
unsigned account_tenants(struct sim_state *state, struct sim_tenant *out, unsigned capacity);
unsigned account_occupants(struct sim_state *state, struct sim_occupant *out, unsigned capacity);

/* Copy the account of the mount namespace (of several with one inode the latest) and close it:
 * whoever comes next with that inode starts from nothing. Returns 0, or -ENOENT. */
int account_retire(struct sim_state *state, uint64_t mount_namespace, struct sim_tenant *out);

/* Bytes all processes hold on a GPU. */
uint64_t account_used(struct sim_state *state, unsigned gpu);

/* Percent of the last sample period in which anything ran. */
unsigned account_busy_percent(struct sim_state *state, unsigned gpu);

/* GPU time that work had to wait for while the GPU switched between processes. */
uint64_t account_lost_ns(struct sim_state *state, unsigned gpu);

/* The sample periods that ended after `after_ns`, the oldest first; how many there are. */
unsigned account_periods(struct sim_state *state, unsigned gpu, uint64_t after_ns,
                         struct sim_period out[SIM_RING]);

/* Time in which anything ran, since the machine was made. */
uint64_t account_gpu_busy_ns(struct sim_state *state, unsigned gpu);

/* Is the copy engine of a direction (an index below SIM_ENGINES) at work? */
bool account_copies(struct sim_state *state, unsigned gpu, unsigned engine);

/* What NVML tells of processes' utilisation of a GPU in sample periods that ended after `after_ns`;
 * how many rows, or -ENOTSUP of a driver that never tells. */
int account_utilization(struct sim_state *state, unsigned gpu, uint64_t after_ns,
                        struct sim_utilization out[SIM_PROCESSES]);

/* GPU time a process received on a GPU, and its own part of the latest sample period with any, and
 * when that ended. The lock is held, the GPU settled. */
uint64_t account_busy_ns(const struct sim_process *process, unsigned gpu);
unsigned account_sample(const struct sim_state *state, const struct sim_process *process,
                        unsigned gpu, uint64_t *ended_ns);

const struct sim_machine *account_machine(const struct sim_state *state);

#endif
