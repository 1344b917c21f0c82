/* Time: CLOCK_MONOTONIC in nanoseconds. No other clock is read and no other sleep is taken, so that
 * whoever replaces these two functions of libc decides what time is. */
#ifndef PROGRAMS_CUDA_WORK_MOMENT_H
#define PROGRAMS_CUDA_WORK_MOMENT_H

#include <stdint.h>

uint64_t moment_now(void);
void moment_sleep_until(uint64_t moment);
void moment_sleep(uint64_t ns);

#endif
