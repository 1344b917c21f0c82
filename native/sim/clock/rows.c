/* Who takes part. */
#include "clock/life.h"
#include "clock/turn.h"
#include <errno.h>

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
    turn_lock(clock);
    int row = free_row(clock);
    if (row >= 0) {
        struct simclock_taker *taker = &clock->takers[row];
        taker->pid = pid;
        taker->tid = tid;
        taker->start_time = start_time;
        taker->conductor = conductor;
        taker->blocked = 0;
        turn_fall_asleep(clock, taker, simclock_peek(clock));
        turn_pass_on(clock, NULL);
    }
    turn_unlock(clock);
    return row;
}

void simclock_become(struct simclock *clock, int taker, int32_t pid, int32_t tid)
{
    uint64_t start_time = life_start_time(pid, tid);
    turn_lock(clock);
    struct simclock_taker *self = &clock->takers[taker];
    self->pid = pid;
    self->tid = tid;
    self->start_time = start_time;
    turn_unlock(clock);
}

/* Who ran, runs on. */
static void resume(struct simclock *clock, struct simclock_taker *taker, bool first)
{
    if (!first)
        taker->state = SIMCLOCK_FREE;
    else if (taker->state != SIMCLOCK_RUNNING)
        turn_fall_asleep(clock, taker, simclock_peek(clock));
}

int simclock_resume(struct simclock *clock, int32_t pid)
{
    int found = -ENOENT;
    uint64_t start_time = life_start_time(pid, pid);
    turn_lock(clock);
    for (uint32_t row = 0; row < clock->limit; row++) {
        struct simclock_taker *taker = &clock->takers[row];
        if (taker->state == SIMCLOCK_FREE || taker->pid != pid || taker->tid == 0)
            continue;
        bool first = taker->tid == pid && taker->start_time == start_time;
        resume(clock, taker, first);
        found = first ? (int)row : found;
    }
    turn_pass_on(clock, NULL);
    turn_unlock(clock);
    return found;
}

bool simclock_aside(const struct simclock *clock, int taker)
{
    return atomic_load_explicit(&clock->takers[taker].state, memory_order_relaxed) ==
           SIMCLOCK_ASIDE;
}

static void set_state(struct simclock *clock, int taker, enum simclock_state state)
{
    turn_lock(clock);
    clock->takers[taker].state = state;
    turn_pass_on(clock, NULL);
    turn_unlock(clock);
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
    turn_lock(clock);
    turn_look_round(clock, NULL, true);
    for (uint32_t row = 0; row < clock->limit; row++) {
        if (clock->takers[row].state == SIMCLOCK_FREE)
            continue;
        if (count < capacity)
            out[count] = clock->takers[row];
        count++;
    }
    turn_unlock(clock);
    return count;
}
