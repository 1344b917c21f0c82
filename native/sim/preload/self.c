#include "preload/self.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

struct simclock *self_clock;

static _Thread_local int self = -1;

static int32_t thread_id(void)
{
    return (int32_t)syscall(SYS_gettid);
}

void self_begin(int taker)
{
    if (taker < 0)
        return;
    self = taker;
    simclock_become(self_clock, self, getpid(), thread_id());
    simclock_wait(self_clock, self, 0);
}

/* False without a clock, and where its page is full. */
static bool joined(void)
{
    if (self_clock != NULL && self < 0)
        self_begin(self_reserve());
    return self >= 0;
}

uint64_t self_look(void)
{
    if (joined() && simclock_aside(self_clock, self))
        simclock_sleep(self_clock, self, simclock_peek(self_clock), 0);
    return simclock_look(self_clock);
}

void self_sleep_until(uint64_t deadline)
{
    if (joined())
        simclock_sleep(self_clock, self, deadline, 0);
}

void self_sleep_waking(uint64_t deadline)
{
    if (joined())
        simclock_sleep_waking(self_clock, self, deadline, 0);
}

int self_reserve(void)
{
    return self_clock == NULL ? -1 : simclock_join(self_clock, getpid(), 0, false);
}

void self_unreserve(int taker)
{
    if (taker >= 0)
        simclock_leave(self_clock, taker);
}

/* Not for the child of a vfork(), which has its parent's variables. */
void self_end(void)
{
    if (self < 0 || self_clock->takers[self].pid != getpid())
        return;
    simclock_end(self_clock, self);
    self = -1;
}

void *self_next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static void forget(void)
{
    self = -1;
}

/* What this process was before an exec goes on where it was. */
static void join(void)
{
    self = simclock_resume(self_clock, getpid());
    if (self >= 0)
        simclock_wait(self_clock, self, 0);
    else
        joined();
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("SIM_CLOCK");
    if (path == NULL || simclock_open(path, &self_clock) != 0)
        return;
    pthread_atfork(NULL, NULL, forget); /* a fork that is not by our name joins at its first look */
    join();
}

__attribute__((destructor)) static void end(void)
{
    self_end();
}
