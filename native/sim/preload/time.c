/* The C library's functions that tell the time and that sleep, by the page's clock. */
#include "preload/self.h"
#include <errno.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const uint64_t second = UINT64_C(1000000000);
static const uint64_t epoch = UINT64_C(1767225600); /* the day the page began, less its time */

static struct timespec to_timespec(uint64_t nanoseconds)
{
    return (struct timespec){(time_t)(nanoseconds / second), (long)(nanoseconds % second)};
}

static uint64_t to_nanoseconds(const struct timespec *time)
{
    return (uint64_t)time->tv_sec * second + (uint64_t)time->tv_nsec;
}

/* Whether a clock is ours, and where it stands when the page's stands at 0. */
static bool ours(clockid_t clock, uint64_t *origin)
{
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
    case CLOCK_TAI:
        *origin = epoch * second;
        return self_clock != NULL;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
        *origin = 0;
        return self_clock != NULL;
    default: /* what a thread or process has computed */
        return false;
    }
}

OVERRIDE int clock_gettime(clockid_t clock, struct timespec *out)
{
    uint64_t origin;
    if (!ours(clock, &origin))
        return (int)syscall(SYS_clock_gettime, clock, out);
    *out = to_timespec(origin + self_look());
    return 0;
}

OVERRIDE int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

OVERRIDE time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL)
        *out = now.tv_sec;
    return now.tv_sec;
}

static bool valid(const struct timespec *time)
{
    return time->tv_sec >= 0 && time->tv_nsec >= 0 && (uint64_t)time->tv_nsec < second;
}

static uint64_t after(uint64_t origin, uint64_t time)
{
    return time > origin ? time - origin : 0;
}

OVERRIDE int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wanted,
                             struct timespec *left)
{
    uint64_t origin;
    if (!ours(clock, &origin)) {
        long result = syscall(SYS_clock_nanosleep, clock, flags, wanted, left);
        return result == 0 ? 0 : errno;
    }
    if (!valid(wanted))
        return EINVAL;
    uint64_t time = to_nanoseconds(wanted);
    bool absolute = (flags & TIMER_ABSTIME) != 0;
    self_sleep_until(absolute ? after(origin, time) : simclock_peek(self_clock) + time);
    return 0;
}

OVERRIDE int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    errno = clock_nanosleep(CLOCK_MONOTONIC, 0, wanted, left);
    return errno == 0 ? 0 : -1;
}

OVERRIDE int usleep(useconds_t microseconds)
{
    struct timespec wanted = to_timespec((uint64_t)microseconds * 1000);
    return nanosleep(&wanted, NULL);
}

OVERRIDE unsigned sleep(unsigned seconds)
{
    struct timespec wanted = {.tv_sec = (time_t)seconds};
    return nanosleep(&wanted, NULL) == 0 ? 0 : seconds;
}

/* Who spins lets the others go on. */
OVERRIDE int sched_yield(void)
{
    if (self_clock == NULL)
        return (int)syscall(SYS_sched_yield);
    self_sleep_until(simclock_look(self_clock));
    return 0;
}
