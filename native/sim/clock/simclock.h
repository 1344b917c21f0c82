/* A clock that moves only while everybody sleeps: for runs that come out the same each time.
 *
 * One page of shared memory has the time and a row for each thread that takes part, a taker. One
 * taker runs at a time. When it falls asleep, the one to be woken first runs next, and the time
 * becomes what it waited for; of several that wait for the same time the conductor is first, and
 * then who fell asleep first. So the order of everything follows from what the takers do, however
 * fast the machine is and whatever else it does.
 *
 * Computing takes no time. But every look at the clock moves it a little (SIMCLOCK_LOOK_NS), so
 * that who looks until some time has come does see it come.
 *
 * Who sleeps so that it can be woken (simclock_sleep_waking) sleeps no longer than until
 * `wake_ns` after the next simclock_wake_all: so late futexes wake their waiters. All of them are
 * woken, each at its place in the order above, and look themselves whether it was for them.
 *
 * Each taker has a futex of its own to sleep on. Who dies is noticed by the sleepers, which look
 * up ten times a second of real time; who ends orderly says so, and the time stands until it has
 * really gone, since others see its end (a GPU takes back its memory). Who is found blocked in the
 * kernel, where nobody can wake it by this clock, is set aside: the others go on, and it waits for
 * its turn at its next look. What happens in such a moment depends on the machine.
 *
 * A tool for simulations alone: the page trusts all who map it.
 */
#ifndef SIM_CLOCK_SIMCLOCK_H
#define SIM_CLOCK_SIMCLOCK_H

#ifndef VCUDA_CDEF
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#endif

#ifdef VCUDA_PLAIN
#define SIMCLOCK_ATOMIC(type) type
#else
#define SIMCLOCK_ATOMIC(type) _Atomic(type)
#endif

enum {
    SIMCLOCK_MAGIC = 0x4b434c43, /* "CLCK" */
    SIMCLOCK_VERSION = 2,
    SIMCLOCK_TAKERS = 1024,
    SIMCLOCK_WAKE_NS = 20000, /* what a wake costs, unless it is set otherwise */
    SIMCLOCK_LOOK_NS = 20,    /* about what a look costs on real machines */
};

enum simclock_state {
    SIMCLOCK_FREE,
    SIMCLOCK_RUNNING,
    SIMCLOCK_ASLEEP,
    SIMCLOCK_LEAVING, /* says that it ends: the time stands until it has */
    SIMCLOCK_ASIDE,   /* blocked elsewhere: counts neither as running nor as asleep */
};

/* tid 0: not known yet. turn: the futex. deadline: ns; order: who fell asleep first. */
struct simclock_taker {
    int32_t pid;
    int32_t tid;
    uint64_t start_time;
    SIMCLOCK_ATOMIC(uint32_t) state; /* by others under the mutex only */
    SIMCLOCK_ATOMIC(uint32_t) turn;
    uint64_t deadline;
    uint64_t order;
    uint32_t conductor; /* of the run: first at its time, and never found blocked */
    uint32_t blocked;   /* how often it was found so in a row */
    uint32_t waking;    /* simclock_wake_all ends its sleep */
    uint32_t reserved;
};

#ifndef VCUDA_CDEF
struct simclock {
    uint32_t magic;
    uint32_t version;
    uint64_t size;
    _Atomic(uint64_t) now;
    pthread_mutex_t mutex; /* robust; guards all that follows */
    uint64_t serial;
    uint64_t looked_ns; /* real time of the last search for the blocked */
    uint64_t wake_ns;
    uint32_t limit; /* rows at or above were never used */
    struct simclock_taker takers[SIMCLOCK_TAKERS];
};
#else
struct simclock;
#endif

/* 0, or a negated errno (-EPROTO: not ours). The file must not be there yet. */
int simclock_create(const char *path, uint64_t begin_ns);
int simclock_open(const char *path, struct simclock **out);
void simclock_close(struct simclock *clock);

/* The time; to look moves it, to peek does not. */
uint64_t simclock_look(struct simclock *clock);
uint64_t simclock_peek(const struct simclock *clock);
const uint64_t *simclock_word(const struct simclock *clock);

/* A row for a thread, which is asleep until its turn now. Its index, or -ENOSPC. Whoever makes it
 * for a thread that is not there yet gives its own pid, and 0 for tid. */
int simclock_join(struct simclock *clock, int32_t pid, int32_t tid, bool conductor);
/* Now it is there. */
void simclock_become(struct simclock *clock, int taker, int32_t pid, int32_t tid);
/* The row of this process's first thread from before an exec, and the end of its others; else
 * -ENOENT. */
int simclock_resume(struct simclock *clock, int32_t pid);

/* Sleep until the time has come and it is this taker's turn; or wait for the turn alone.
 * patience_ms: of real time, 0 for ever. 0, or -ETIMEDOUT and the taker is still asleep. */
int simclock_sleep(struct simclock *clock, int taker, uint64_t deadline, uint32_t patience_ms);
int simclock_wait(struct simclock *clock, int taker, uint32_t patience_ms);

/* The same, but simclock_wake_all ends it. */
int simclock_sleep_waking(struct simclock *clock, int taker, uint64_t deadline,
                          uint32_t patience_ms);
/* Any thread, a taker or not. */
void simclock_wake_all(struct simclock *clock);
void simclock_set_wake(struct simclock *clock, uint64_t wake_ns);

/* Was it set aside? */
bool simclock_aside(const struct simclock *clock, int taker);

/* The row is free at once, or when its thread has ended. */
void simclock_leave(struct simclock *clock, int taker);
void simclock_end(struct simclock *clock, int taker);

/* All rows in use; the dead are gone. Returns how many there are. */
unsigned simclock_takers(struct simclock *clock, struct simclock_taker *out, unsigned capacity);

#endif
