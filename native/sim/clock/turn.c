/* Whose turn it is, and waiting for it. */
#include "clock/life.h"
#include "clock/simclock.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum turn {
    NOT_YET,
    NOW,
    WATCH, /* would be next, but somebody is leaving: see to it */
};

enum {
    MILLISECOND = 1000 * 1000,
    PATROL_NS = 100 * MILLISECOND, /* between two looks of a sleeper at the others */
    WATCH_NS = MILLISECOND / 5,
    BLOCKED_LIMIT = 3, /* patrols in a row */
};

static uint64_t real_now(void)
{
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 * MILLISECOND + (uint64_t)now.tv_nsec;
}

static void lock(struct simclock *clock)
{
    if (pthread_mutex_lock(&clock->mutex) == EOWNERDEAD)
        pthread_mutex_consistent(&clock->mutex); /* its row is found dead by the next patrol */
}

static void unlock(struct simclock *clock)
{
    pthread_mutex_unlock(&clock->mutex);
}

static void set_turn(struct simclock_taker *taker, enum turn turn)
{
    atomic_store_explicit(&taker->turn, turn, memory_order_release); /* pairs with simclock_wait */
}

static void wake(struct simclock_taker *taker)
{
    syscall(SYS_futex, &taker->turn, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static bool before(const struct simclock_taker *one, const struct simclock_taker *other)
{
    if (one->deadline != other->deadline)
        return one->deadline < other->deadline;
    if (one->conductor != other->conductor)
        return one->conductor > other->conductor;
    return one->order < other->order;
}

/* The sleeper to be woken first, NULL if nobody may be. */
static struct simclock_taker *next_sleeper(struct simclock *clock, bool *leaving)
{
    struct simclock_taker *next = NULL;
    *leaving = false;
    for (uint32_t row = 0; row < clock->limit; row++) {
        struct simclock_taker *taker = &clock->takers[row];
        if (taker->state == SIMCLOCK_RUNNING)
            return NULL;
        *leaving |= taker->state == SIMCLOCK_LEAVING;
        if (taker->state == SIMCLOCK_ASLEEP && (next == NULL || before(taker, next)))
            next = taker;
    }
    return next;
}

static void choose(struct simclock *clock, struct simclock_taker *next)
{
    if (next->deadline > simclock_peek(clock))
        atomic_store_explicit(&clock->now, next->deadline, memory_order_relaxed);
    next->state = SIMCLOCK_RUNNING;
    next->blocked = 0;
    set_turn(next, NOW);
}

/* The caller, if it is a taker, needs no waking. */
static void pass_on(struct simclock *clock, const struct simclock_taker *caller)
{
    bool leaving;
    struct simclock_taker *next = next_sleeper(clock, &leaving);
    if (next == NULL)
        return;
    if (leaving)
        set_turn(next, WATCH);
    else
        choose(clock, next);
    if (next != caller)
        wake(next);
}

static void examine(struct simclock_taker *taker, bool patrol)
{
    enum life life = life_of(taker);
    if (life == LIFE_DEAD) {
        taker->state = SIMCLOCK_FREE;
        return;
    }
    if (!patrol || taker->state != SIMCLOCK_RUNNING || taker->conductor)
        return;
    taker->blocked = life == LIFE_BLOCKED ? taker->blocked + 1 : 0;
    if (taker->blocked >= BLOCKED_LIMIT)
        taker->state = SIMCLOCK_ASIDE;
}

/* Find the dead, and once in a while the blocked. */
static void look_round(struct simclock *clock, const struct simclock_taker *caller)
{
    uint64_t now = real_now();
    bool patrol = now - clock->looked_ns >= PATROL_NS;
    if (patrol)
        clock->looked_ns = now;
    for (uint32_t row = 0; row < clock->limit; row++)
        if (clock->takers[row].state != SIMCLOCK_FREE)
            examine(&clock->takers[row], patrol);
    pass_on(clock, caller);
}

static void fall_asleep(struct simclock *clock, struct simclock_taker *taker, uint64_t deadline)
{
    taker->deadline = deadline;
    taker->order = ++clock->serial;
    taker->state = SIMCLOCK_ASLEEP;
    set_turn(taker, NOT_YET);
}

/* Whether the time for a look at the others has come, or only for a look at one's own turn. */
static bool wait_a_while(struct simclock_taker *self, uint32_t seen)
{
    struct timespec timeout = {.tv_nsec = seen == WATCH ? WATCH_NS : PATROL_NS};
    long result = syscall(SYS_futex, &self->turn, FUTEX_WAIT, seen, &timeout, NULL, 0);
    return result != 0 && errno == ETIMEDOUT;
}

static void patrol(struct simclock *clock, struct simclock_taker *self)
{
    lock(clock);
    if (self->turn == WATCH)
        set_turn(self, NOT_YET); /* or it is told again */
    look_round(clock, self);
    unlock(clock);
}

int simclock_wait(struct simclock *clock, int taker, uint32_t patience_ms)
{
    struct simclock_taker *self = &clock->takers[taker];
    uint64_t until = real_now() + (uint64_t)patience_ms * MILLISECOND;
    for (uint32_t seen; (seen = atomic_load_explicit(&self->turn, memory_order_acquire)) != NOW;) {
        if (wait_a_while(self, seen))
            patrol(clock, self);
        if (patience_ms > 0 && real_now() > until)
            return atomic_load(&self->turn) == NOW ? 0 : -ETIMEDOUT;
    }
    return 0;
}

int simclock_sleep(struct simclock *clock, int taker, uint64_t deadline, uint32_t patience_ms)
{
    lock(clock);
    fall_asleep(clock, &clock->takers[taker], deadline);
    pass_on(clock, &clock->takers[taker]);
    unlock(clock);
    return simclock_wait(clock, taker, patience_ms);
}

static int free_row(struct simclock *clock)
{
    for (uint32_t row = 0; row < clock->limit; row++)
        if (clock->takers[row].state == SIMCLOCK_FREE)
            return (int)row;
    return clock->limit < SIMCLOCK_TAKERS ? (int)clock->limit++ : -ENOSPC;
}

int simclock_join(struct simclock *clock, int32_t pid, int32_t tid, bool conductor)
{
    uint64_t start_time = life_start_time(pid, tid);
    lock(clock);
    int row = free_row(clock);
    if (row >= 0) {
        struct simclock_taker *taker = &clock->takers[row];
        taker->pid = pid;
        taker->tid = tid;
        taker->start_time = start_time;
        taker->conductor = conductor;
        taker->blocked = 0;
        fall_asleep(clock, taker, simclock_peek(clock));
        pass_on(clock, NULL);
    }
    unlock(clock);
    return row;
}

void simclock_become(struct simclock *clock, int taker, int32_t pid, int32_t tid)
{
    uint64_t start_time = life_start_time(pid, tid);
    lock(clock);
    struct simclock_taker *self = &clock->takers[taker];
    self->pid = pid;
    self->tid = tid;
    self->start_time = start_time;
    unlock(clock);
}

static void resume(struct simclock_taker *taker, bool first)
{
    if (!first)
        taker->state = SIMCLOCK_FREE;
    else if (taker->state != SIMCLOCK_ASLEEP) /* who ran, runs on */
        taker->state = SIMCLOCK_RUNNING;
}

int simclock_resume(struct simclock *clock, int32_t pid)
{
    int found = -ENOENT;
    uint64_t start_time = life_start_time(pid, pid);
    lock(clock);
    for (uint32_t row = 0; row < clock->limit; row++) {
        struct simclock_taker *taker = &clock->takers[row];
        if (taker->state == SIMCLOCK_FREE || taker->pid != pid || taker->tid == 0)
            continue;
        bool first = taker->tid == pid && taker->start_time == start_time;
        resume(taker, first);
        found = first ? (int)row : found;
    }
    unlock(clock);
    return found;
}

bool simclock_aside(const struct simclock *clock, int taker)
{
    return atomic_load_explicit(&clock->takers[taker].state, memory_order_relaxed) ==
           SIMCLOCK_ASIDE;
}

static void set_state(struct simclock *clock, int taker, enum simclock_state state)
{
    lock(clock);
    clock->takers[taker].state = state;
    pass_on(clock, NULL);
    unlock(clock);
}

void simclock_leave(struct simclock *clock, int taker)
{
    set_state(clock, taker, SIMCLOCK_FREE);
}

void simclock_end(struct simclock *clock, int taker)
{
    set_state(clock, taker, SIMCLOCK_LEAVING);
}

unsigned simclock_takers(struct simclock *clock, struct simclock_taker *out, unsigned capacity)
{
    unsigned count = 0;
    lock(clock);
    look_round(clock, NULL);
    for (uint32_t row = 0; row < clock->limit; row++) {
        if (clock->takers[row].state == SIMCLOCK_FREE)
            continue;
        if (count < capacity)
            out[count] = clock->takers[row];
        count++;
    }
    unlock(clock);
    return count;
}
