/* NVML between the first init and the last shutdown: the state it looks at, the GPUs it shows.
 * It only observes, and takes no slot in the shared state. */
#ifndef SIM_NVML_SESSION_H
#define SIM_NVML_SESSION_H

#include "core/account.h"
#include "nvml/api.h"

/* A handle: one GPU of the machine. */
struct device {
    unsigned gpu;
};

/* loads: of the driver, when it was opened. */
struct session {
    struct sim_state *state; /* NULL: not initialised */
    uint32_t loads;
    unsigned device_count;
    struct device devices[SIM_GPUS];
};

/* NVML_ERROR_UNINITIALIZED before init, NVML_ERROR_UNKNOWN when the driver was reloaded since. */
nvmlReturn_t session_get(struct session **out);

/* The GPU of a handle, for a function that writes to `out`; NVML_ERROR_GPU_IS_LOST. */
nvmlReturn_t session_gpu(nvmlDevice_t device, const void *out, struct session **session,
                         const struct sim_gpu **gpu);

/* A property that is a number, which the caller knows. */
nvmlReturn_t session_number(nvmlDevice_t device, unsigned *out, unsigned value);

/* A time of CLOCK_MONOTONIC as NVML stamps it: microseconds since 1970. The clocks are compared
 * once, so that a sample keeps its stamp and is not taken for a newer one. */
unsigned long long timestamp(uint64_t monotonic_ns);

/* The last time of CLOCK_MONOTONIC with that stamp, or, before all of them, 0. */
uint64_t last_with(unsigned long long stamp);

/* Text into a buffer of the caller's; NVML_ERROR_INSUFFICIENT_SIZE when it is too small. */
nvmlReturn_t session_text(const char *text, char *out, unsigned size);

#endif
