/* What of the machine this process may see: the device nodes are the authority, as on a real node.
 *
 * They lie in $GPUSIM_DEV, or in /dev: `nvidiactl` is the shared state, and a GPU is there exactly
 * when its `nvidia<minor>` is.
 */
#ifndef SIM_CORE_DEVICE_NODES_H
#define SIM_CORE_DEVICE_NODES_H

#include "core/state.h"

/* Map the state. 0, or a negated errno when there is no simulated driver. */
int device_nodes_open(struct sim_state **out);

/* Indices of the GPUs that are there, ascending; returns how many. Without the lock. */
unsigned device_nodes_list(const struct sim_state *state, unsigned gpus[SIM_GPUS]);

#endif
