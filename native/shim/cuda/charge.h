/* Charging for device memory around a call of the driver.
 *
 *     charge_begin → the driver allocates → charge_settle
 *     release_begin → the driver frees → release_settle
 *
 * Memory is reserved before the driver is called and given back if it fails; an address is
 * forgotten before the driver frees it and its bytes are given back after. No lock is held in
 * between.
 */
#ifndef SHIM_CUDA_CHARGE_H
#define SHIM_CUDA_CHARGE_H

#include "cuda/process.h"

struct charge {
    struct process *process; /* NULL: not limited */
    unsigned device;
    uint64_t bytes;
};

/* Reserve on the current device. On an error of the shim or the driver the call must not be made.
 */
CUresult charge_begin(struct charge *charge, uint64_t bytes);

/* The driver has answered; `address` counts if it succeeded. Returns what the program gets. */
CUresult charge_settle(struct charge *charge, CUresult result, CUdeviceptr address);

/* Between the two: the driver took `bytes` in fact. 0, or -EDQUOT and nothing changed. */
int charge_correct(struct charge *charge, uint64_t bytes);

struct release {
    struct process *process; /* NULL: nothing to give back */
    struct pointer pointer;
};

void release_begin(struct release *release, CUdeviceptr address);
CUresult release_settle(struct release *release, CUresult result);

#endif
