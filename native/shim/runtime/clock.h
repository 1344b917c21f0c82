/* The clock the limiter's virtual time is of: the same for all processes of a container. */
#ifndef SHIM_RUNTIME_CLOCK_H
#define SHIM_RUNTIME_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* May return early, when a signal comes. */
static inline void clock_sleep_until(uint64_t when)
{
    struct timespec time = {(time_t)(when / 1000000000), (long)(when % 1000000000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

#endif
