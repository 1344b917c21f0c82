#include "manager/world.h"
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 100, NAP_NS = 1000 * 1000 };

static struct simclock *clock_page;
static _Atomic(bool) over = true; /* the page is told by whoever starts the threads */
static _Thread_local int self = -1;
static pthread_key_t ending;
static pthread_once_t ending_once = PTHREAD_ONCE_INIT;

static void leave(void *anything)
{
    (void)anything;
    if (self >= 0 && !atomic_load(&over))
        simclock_end(clock_page, self);
    self = -1;
}

static void make_key(void)
{
    pthread_key_create(&ending, leave);
}

static uint64_t now(void)
{
    return self >= 0 ? simclock_look(clock_page) : simclock_peek(clock_page);
}

/* simclock_wait, but not beyond the end of the world. */
static void await_turn(int result)
{
    while (result == -ETIMEDOUT && !atomic_load(&over))
        result = simclock_wait(clock_page, self, PATIENCE_MS);
    if (atomic_load(&over)) {
        simclock_leave(clock_page, self);
        self = -1;
    }
}

static void join(void)
{
    pthread_once(&ending_once, make_key);
    self = simclock_join(clock_page, getpid(), (int32_t)syscall(SYS_gettid), false);
    if (self < 0)
        return;
    pthread_setspecific(ending, &ending); /* anything: without a value nobody is called */
    await_turn(-ETIMEDOUT);
}

static void wait_for_change(const VCUDA_ATOMIC(uint32_t) * word, uint32_t expected,
                            uint64_t deadline)
{
    if (atomic_load(&over)) {
        clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = NAP_NS}, NULL);
        return;
    }
    if (self < 0) {
        join();
        return;
    }
    while (
        self >= 0 && simclock_peek(clock_page) < deadline &&
        (word == NULL || __atomic_load_n((const uint32_t *)word, __ATOMIC_ACQUIRE) == expected)) {
        await_turn(simclock_sleep_waking(clock_page, self, deadline, PATIENCE_MS));
        if (word == NULL)
            return;
    }
}

static void wake(VCUDA_ATOMIC(uint32_t) * word)
{
    (void)word;
    simclock_wake_all(clock_page);
}

const struct vcuda_world *sim_world(struct simclock *page)
{
    static const struct vcuda_world world = {now, wait_for_change, wake};
    if (page == NULL) {
        atomic_store(&over, true);
        return NULL;
    }
    clock_page = page;
    atomic_store(&over, false);
    return &world;
}
