/* Who is on a GPU, and NVML's way with lists: asked for twice, with room for nothing to learn the
 * size. */
#ifndef SIM_NVML_OCCUPANTS_H
#define SIM_NVML_OCCUPANTS_H

#include "nvml/session.h"

enum { OCCUPANTS = SIM_PROCESSES };

/* The occupants of the GPU of a handle. `needed` is what the caller must have given. */
nvmlReturn_t occupants_get(nvmlDevice_t device, const void *needed,
                           struct sim_occupant out[OCCUPANTS], unsigned *found);

/* How many there are, and whether the caller's array of *count has room for them. */
nvmlReturn_t occupants_fit(unsigned found, unsigned *count, const void *array);

#endif
