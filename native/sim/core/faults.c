#include "core/faults.h"
#include "core/state.h"
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS UINT64_C(1000000000)
#define LOOK_NS UINT64_C(2000000) /* how soon one who is delayed sees that it is over */

static struct timespec span(uint64_t nanoseconds)
{
    return (struct timespec){.tv_sec = (time_t)(nanoseconds / SECOND_NS),
                             .tv_nsec = (long)(nanoseconds % SECOND_NS)};
}

/* Ends every change: whoever waits looks again. Pairs with faults_changes(). */
static void announce(struct sim_state *state)
{
    __atomic_fetch_add(&state->faults.changes, 1, __ATOMIC_RELEASE);
    sim_unlock(state);
    syscall(SYS_futex, &state->faults.changes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void faults_get_machine(struct sim_state *state, struct sim_machine_faults *out)
{
    sim_lock(state);
    *out = state->faults.machine;
    sim_unlock(state);
}

void faults_set_machine(struct sim_state *state, const struct sim_machine_faults *wanted)
{
    sim_lock(state);
    state->faults.machine = *wanted;
    announce(state);
}

void faults_get_gpu(struct sim_state *state, unsigned gpu, struct sim_gpu_faults *out)
{
    sim_lock(state);
    *out = state->faults.gpus[gpu];
    sim_unlock(state);
}

void faults_set_gpu(struct sim_state *state, unsigned gpu, const struct sim_gpu_faults *wanted)
{
    sim_lock(state);
    state->faults.gpus[gpu] = *wanted;
    announce(state);
}

void faults_event(struct sim_state *state, unsigned gpu, uint64_t type, uint64_t number)
{
    struct sim_faults *faults = &state->faults;
    sim_lock(state);
    faults->events[faults->event_count % SIM_EVENTS] =
        (struct sim_event){.type = type, .number = number, .gpu = gpu};
    faults->event_count++;
    announce(state);
}

void faults_reload(struct sim_state *state)
{
    sim_lock(state);
    state->faults.loads++;
    for (unsigned gpu = 0; gpu < SIM_GPUS; gpu++)
        state->faults.gpus[gpu] = (struct sim_gpu_faults){.call_ns = 0};
    announce(state);
}

void faults_delay(const uint64_t *call_ns)
{
    uint64_t began = 0;
    uint64_t wanted;
    while ((wanted = __atomic_load_n(call_ns, __ATOMIC_RELAXED)) != 0) {
        uint64_t now = sim_now();
        began = began != 0 ? began : now;
        if (now - began >= wanted)
            return;
        uint64_t rest = wanted - (now - began);
        struct timespec pause = span(rest < LOOK_NS ? rest : LOOK_NS);
        nanosleep(&pause, NULL);
    }
}

bool faults_next(struct sim_state *state, const uint64_t types[SIM_GPUS], uint64_t *seen,
                 struct sim_event *out)
{
    bool found = false;
    const struct sim_faults *faults = &state->faults;
    sim_lock(state);
    if (faults->event_count > *seen + SIM_EVENTS)
        *seen = faults->event_count - SIM_EVENTS;
    while (!found && *seen < faults->event_count) {
        *out = faults->events[(*seen)++ % SIM_EVENTS];
        found = (types[out->gpu] & out->type) != 0;
    }
    sim_unlock(state);
    return found;
}

uint32_t faults_changes(const struct sim_state *state)
{
    return __atomic_load_n(&state->faults.changes, __ATOMIC_ACQUIRE);
}

void faults_wait(struct sim_state *state, uint32_t changes, uint64_t timeout_ns)
{
    struct timespec timeout = span(timeout_ns);
    syscall(SYS_futex, &state->faults.changes, FUTEX_WAIT, changes, &timeout, NULL, 0);
}
