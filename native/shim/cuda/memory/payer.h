/* Which device pays for memory at a location (core/memory/location.h), by its ordinal. */
#ifndef SHIM_CUDA_MEMORY_PAYER_H
#define SHIM_CUDA_MEMORY_PAYER_H

#include "core/memory/location.h"
#include "cuda/process.h"

/* With the ordinal of the current device where that is charged, 0 without one. Calls the driver. */
struct location payer_of(const CUmemLocation *location, int allocation);

/* The driver has answered: tell the manager if it made memory at a location we do not know. */
void payer_report(struct process *process, const struct location *location, CUresult result);

#endif
