/* CUDA_VISIBLE_DEVICES: which of the GPUs that are there this process uses, and in which order. */
#ifndef SIM_CUDA_VISIBLE_DEVICES_H
#define SIM_CUDA_VISIBLE_DEVICES_H

#include "core/state.h"

/* The GPU index behind each device; returns how many. The list of the variable, of indices and
 * (beginnings of) `GPU-…` UUIDs, ends at the first entry that names no GPU or one named before. */
unsigned visible_devices(const struct sim_state *state, unsigned gpus[SIM_GPUS]);

#endif
