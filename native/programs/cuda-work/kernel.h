/* A kernel that spins on the GPU's clock for as many nanoseconds as its one parameter says. */
#ifndef PROGRAMS_CUDA_WORK_KERNEL_H
#define PROGRAMS_CUDA_WORK_KERNEL_H

#include "driver.h"
#include "phase.h"

void *kernel_load(const struct driver *cuda);

/* In the form and shape that the phase asks for. Returns the driver's result. */
int kernel_launch(const struct driver *cuda, const struct phase *phase, void *function,
                  uint64_t length, void *stream);

#endif
