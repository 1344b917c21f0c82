#include "clock/turn.h"
#include "clock/life.h"
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

void turn_lock(struct simclock *clock)
{
    if (pthread_mutex_lock(&clock->mutex) == EOWNERDEAD)
        pthread_mutex_consistent(&clock->mutex); /* its row is found dead by the next patrol */
}

void turn_unlock(struct simclock *clock)
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

void turn_pass_on(struct simclock *clock, const struct simclock_taker *caller)
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

/* One more time that it was found running, but blocked in the kernel, or not. */
static void note_blocked(struct simclock_taker *taker, bool blocked)
{
    if (taker->state != SIMCLOCK_RUNNING || taker->conductor)
        return;
    taker->blocked = blocked ? taker->blocked + 1 : 0;
    if (taker->blocked >= BLOCKED_LIMIT)
        taker->state = SIMCLOCK_ASIDE;
}

static void examine(struct simclock_taker *taker, bool long_since)
{
    enum life life = life_of(taker);
    if (life == LIFE_DEAD)
        taker->state = SIMCLOCK_FREE;
    else if (long_since)
        note_blocked(taker, life == LIFE_BLOCKED);
}

void turn_look_round(struct simclock *clock, const struct simclock_taker *caller, bool all)
{
    uint64_t now = real_now();
    bool long_since = now - clock->looked_ns >= PATROL_NS;
    if (long_since)
        clock->looked_ns = now;
    for (uint32_t row = 0; row < clock->limit; row++) {
        uint32_t state = clock->takers[row].state;
        if (state != SIMCLOCK_FREE && (all || long_since || state == SIMCLOCK_LEAVING))
            examine(&clock->takers[row], long_since);
    }
    turn_pass_on(clock, caller);
}

void turn_fall_asleep(struct simclock *clock, struct simclock_taker *taker, uint64_t deadline)
{
    taker->deadline = deadline;
    taker->order = ++clock->serial;
    taker->waking = false;
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
    turn_lock(clock);
    if (self->turn == WATCH)
        set_turn(self, NOT_YET); /* or it is told again */
    turn_look_round(clock, self, false);
    turn_unlock(clock);
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

static int sleep_until(struct simclock *clock, int taker, uint64_t deadline, uint32_t patience_ms,
                       bool waking)
{
    turn_lock(clock);
    turn_fall_asleep(clock, &clock->takers[taker], deadline);
    clock->takers[taker].waking = waking;
    turn_pass_on(clock, &clock->takers[taker]);
    turn_unlock(clock);
    return simclock_wait(clock, taker, patience_ms);
}

int simclock_sleep(struct simclock *clock, int taker, uint64_t deadline, uint32_t patience_ms)
{
    return sleep_until(clock, taker, deadline, patience_ms, false);
}

int simclock_sleep_waking(struct simclock *clock, int taker, uint64_t deadline,
                          uint32_t patience_ms)
{
    return sleep_until(clock, taker, deadline, patience_ms, true);
}

void simclock_wake_all(struct simclock *clock)
{
    turn_lock(clock);
    uint64_t at = simclock_peek(clock) + clock->wake_ns;
    for (uint32_t row = 0; row < clock->limit; row++) {
        struct simclock_taker *taker = &clock->takers[row];
        if (taker->state == SIMCLOCK_ASLEEP && taker->waking && taker->deadline > at)
            taker->deadline = at;
    }
    turn_unlock(clock);
}

void simclock_set_wake(struct simclock *clock, uint64_t wake_ns)
{
    turn_lock(clock);
    clock->wake_ns = wake_ns;
    turn_unlock(clock);
}
