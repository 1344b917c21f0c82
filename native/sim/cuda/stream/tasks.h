/* Calls as pieces of work: how long they take, and what of the device. */
#ifndef SIM_CUDA_STREAM_TASKS_H
#define SIM_CUDA_STREAM_TASKS_H

#include "core/task.h"
#include "cuda/driver.h"

/* What takes no time. */
#define NO_WORK ((struct sim_task){.kind = SIM_MARKER})

/* A kernel: as many SMs as its blocks fill, by the threads an SM has room for. */
struct sim_task task_kernel(const struct driver *driver, int device, const CUlaunchConfig *shape,
                            uint64_t duration_ns);

/* A memset, or the two sides of a copy within the device: `bytes` read plus written. */
struct sim_task task_memory(const struct driver *driver, int device, uint64_t bytes);

/* A copy over the link, of one of the two kinds. */
struct sim_task task_copy(const struct driver *driver, int device, enum sim_kind kind,
                          uint64_t bytes);

#endif
