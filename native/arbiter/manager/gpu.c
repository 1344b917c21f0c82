#include "manager/gpu.h"

#include <errno.h>
#include <stdatomic.h>

static const uint64_t coupled_ns = 1000000000; /* GPUs, after a collective */

/* Written here alone. Release: a reader that sees the word sees the window that belongs to it. */
static bool write_word(struct vcuda_turn *turn, uint32_t bits, uint64_t window, bool again)
{
    uint32_t was = atomic_load_explicit(&turn->turn, memory_order_relaxed);
    atomic_store_explicit(&turn->window_ns, window, memory_order_relaxed);
    if ((was & (VCUDA_TURN_STEP - 1)) == bits && !again)
        return false;
    uint32_t counted = (was & ~(uint32_t)(VCUDA_TURN_STEP - 1)) + VCUDA_TURN_STEP;
    atomic_store_explicit(&turn->turn, counted | bits, memory_order_release);
    return again || ((bits & VCUDA_TURN_GRANTED) && !(was & VCUDA_TURN_GRANTED));
}

int gpu_seat(struct gpu *gpu, struct arbiter_container *container, uint32_t device, double weight,
             double ceiling)
{
    struct seat *seat = &container->seats[device];
    if (ceiling < weight)
        ceiling = weight;
    if (seat->gpu == NULL) {
        int member = turns_join(&gpu->turns, weight, ceiling);
        if (member == TURNS_NOBODY)
            return -ENOSPC;
        *seat = (struct seat){.gpu = gpu, .member = member};
        gpu->turns.members[member].populated = container->processes != NULL;
        gpu->containers[member] = container;
        gpu->devices[member] = device;
    }
    gpu->turns.members[seat->member].weight = weight;
    gpu->turns.members[seat->member].ceiling = ceiling;
    gpu->next = 0;
    return 0;
}

void gpu_unseat(struct arbiter_container *container, uint32_t device)
{
    struct seat *seat = &container->seats[device];
    if (seat->gpu != NULL) {
        turns_leave(&seat->gpu->turns, seat->member);
        seat->gpu->containers[seat->member] = NULL;
        seat->gpu->next = 0;
    }
    *seat = (struct seat){0};
}

void gpu_ungovern(struct arbiter_container *container, uint32_t device,
                  const struct vcuda_world *world)
{
    struct vcuda_turn *turn = &container->words->of[device];
    gpu_unseat(container, device);
    if (write_word(turn, VCUDA_TURN_GRANTED, 0, false))
        world->wake(&turn->turn);
}

static void observe_collectives(struct arbiter_container *container, struct process *process,
                                uint32_t device, uint64_t now)
{
    const struct vcuda_hint *hint = &container->hints->of[device][process->slot];
    uint32_t launched = atomic_load_explicit(&hint->collectives_launched, memory_order_relaxed);
    if (launched != process->collectives[device] ||
        atomic_load_explicit(&hint->collectives, memory_order_relaxed) > 0)
        container->collective_ns[device] = now;
    process->collectives[device] = launched;
}

/* busy_ns last: turns_observe() knows that the rest may be older. Acquire pairs with the process's
 * release of each word. */
static struct turns_report report_of(const struct vcuda_hint *hint, uint64_t now)
{
    return (struct turns_report){
        .waiting = now < atomic_load_explicit(&hint->waits_until_ns, memory_order_acquire)
                       ? atomic_load_explicit(&hint->waiting, memory_order_acquire)
                       : 0,
        .ran_ns = atomic_load_explicit(&hint->ran_ns, memory_order_acquire),
        .since_ns = atomic_load_explicit(&hint->since_ns, memory_order_acquire),
        .progress_ns = atomic_load_explicit(&hint->progress_ns, memory_order_acquire),
        .spins = atomic_load_explicit(&hint->collectives, memory_order_acquire) > 0,
        .longest_ns = atomic_load_explicit(&hint->longest_ns, memory_order_acquire),
        .held_ns = atomic_load_explicit(&hint->held_ns, memory_order_acquire),
        .busy_ns = atomic_load_explicit(&hint->busy_ns, memory_order_acquire),
    };
}

static void observe_process(const struct gpu *gpu, struct arbiter_container *container,
                            struct process *process, uint32_t device, struct turns_seen *seen,
                            uint64_t now)
{
    struct turns_report report = report_of(&container->hints->of[device][process->slot], now);
    turns_observe(seen, &process->of[device], &report, &gpu->turns.rules, gpu->turns.last, now);
}

void gpu_process_comes(struct arbiter_container *container, struct process *process, uint64_t now)
{
    for (uint32_t device = 0; device < container->count; device++) {
        struct turns_seen seen = {0};
        if (container->seats[device].gpu != NULL)
            observe_process(container->seats[device].gpu, container, process, device, &seen, now);
    }
}

void gpu_process_goes(struct arbiter_container *container, struct process *process, uint64_t now)
{
    for (uint32_t device = 0; device < container->count; device++) {
        const struct seat *seat = &container->seats[device];
        if (seat->gpu == NULL)
            continue;
        struct turns_work *left = &seat->gpu->turns.members[seat->member].left;
        struct turns_seen seen = {.work = *left};
        observe_process(seat->gpu, container, process, device, &seen, now);
        *left = seen.work;
    }
}

static void observe(struct gpu *gpu, int at, uint64_t now)
{
    struct arbiter_container *container = gpu->containers[at];
    struct turns_seen *seen = &gpu->turns.members[at].seen;
    uint32_t device = gpu->devices[at];
    *seen = (struct turns_seen){.work = gpu->turns.members[at].left};
    gpu->turns.members[at].left = (struct turns_work){0};
    for (struct process *process = container->processes; process != NULL; process = process->next) {
        observe_process(gpu, container, process, device, seen, now);
        observe_collectives(container, process, device, now);
    }
    gpu->turns.members[at].populated = container->processes != NULL;
}

static void publish(struct gpu *gpu, int at, const struct vcuda_world *world, uint64_t now)
{
    const struct turns_member *member = &gpu->turns.members[at];
    struct vcuda_turn *turn = &gpu->containers[at]->words->of[gpu->devices[at]];
    uint32_t bits = (member->told.granted ? VCUDA_TURN_GRANTED : 0) |
                    (member->told.bounded ? VCUDA_TURN_BOUNDED : 0) |
                    (member->told.shared ? VCUDA_TURN_SHARED : 0) |
                    (member->told.wanted ? VCUDA_TURN_WANTED : 0);
    /* One that has the turn, and found that the arbiter has not looked for long, waits for a look.
     */
    bool waited = member->told.granted && member->seen.waiting > 0 &&
                  atomic_load_explicit(&turn->looked_ns, memory_order_relaxed) +
                          (uint64_t)VCUDA_LEASE_MS * 1000000 <=
                      now;
    atomic_store_explicit(&turn->looked_ns, now, memory_order_release);
    if (write_word(turn, bits, member->told.window, waited))
        world->wake(&turn->turn);
}

/* A container may have a GPU by two of its devices: then the first one counts. */
static bool is_in(const struct turns_gang *gang, const struct turns_gpu *gpu)
{
    for (unsigned at = 0; at < gang->count; at++)
        if (gang->seats[at].gpu == gpu)
            return true;
    return false;
}

static void form(struct arbiter_container *container, uint64_t now)
{
    struct turns_gang *gang = &container->gang;
    gang->count = 0;
    for (uint32_t device = 0; device < container->count; device++) {
        const struct seat *seat = &container->seats[device];
        if (seat->gpu == NULL)
            continue;
        seat->gpu->turns.members[seat->member].gang = false;
        if (now < container->collective_ns[device] + coupled_ns && !is_in(gang, &seat->gpu->turns))
            gang->seats[gang->count++] = (struct turns_seat){&seat->gpu->turns, seat->member};
    }
    if (gang->count < 2)
        gang->count = 0;
    for (unsigned at = 0; at < gang->count; at++)
        gang->seats[at].gpu->members[gang->seats[at].member].gang = true;
}

const struct turns_gang *gpu_gangs(struct arbiter_container *containers, uint64_t now)
{
    struct turns_gang *gangs = NULL;
    for (struct arbiter_container *one = containers; one != NULL; one = one->next) {
        if (one->count < 2)
            continue;
        form(one, now);
        if (one->gang.count > 0) {
            one->gang.next = gangs;
            gangs = &one->gang;
        }
    }
    return gangs;
}

/* The containers that lost the turn are told before those that got it. */
void gpu_step(struct gpu *const *gpus, unsigned count, const struct turns_gang *gangs,
              const struct vcuda_world *world, uint64_t now)
{
    struct turns_gpu *turns[ARBITER_GPUS] = {0};
    for (unsigned it = 0; it < count; it++) {
        turns[it] = &gpus[it]->turns;
        for (int at = 0; at < turns[it]->count; at++)
            if (turns[it]->members[at].present)
                observe(gpus[it], at, now);
    }
    gangs_decide(turns, count, gangs, now);
    for (unsigned it = 0; it < count; it++)
        gpus[it]->next = turns_tell(turns[it], now);
    for (int granted = 0; granted < 2; granted++)
        for (unsigned it = 0; it < count; it++)
            for (int at = 0; at < turns[it]->count; at++)
                if (turns[it]->members[at].present &&
                    turns[it]->members[at].told.granted == granted)
                    publish(gpus[it], at, world, now);
}

void gpu_mark_due(struct arbiter_container *container)
{
    for (uint32_t device = 0; device < container->count; device++)
        if (container->seats[device].gpu != NULL)
            container->seats[device].gpu->next = 0;
}
