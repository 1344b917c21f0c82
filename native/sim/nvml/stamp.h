/* Times as NVML tells them: microseconds since 1970. */
#ifndef SIM_NVML_STAMP_H
#define SIM_NVML_STAMP_H

#include <stdint.h>

/* A time of CLOCK_MONOTONIC. The clocks are compared once, so that a sample keeps its stamp and is
 * not taken for a newer one. */
unsigned long long stamp_of(uint64_t monotonic_ns);

/* The last time of CLOCK_MONOTONIC with that stamp, or, before all of them, 0. */
uint64_t stamp_end(unsigned long long stamp);

#endif
