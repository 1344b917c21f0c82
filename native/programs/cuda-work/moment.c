#include "moment.h"
#include <errno.h>
#include <time.h>

uint64_t moment_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

void moment_sleep_until(uint64_t moment)
{
    struct timespec time = {.tv_sec = (time_t)(moment / 1000000000),
                            .tv_nsec = (long)(moment % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
        continue;
}

void moment_sleep(uint64_t ns)
{
    moment_sleep_until(moment_now() + ns);
}
