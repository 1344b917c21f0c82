#include "manager/gpu.h"

#include <errno.h>
#include <stdatomic.h>

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

static void observe(struct gpu *gpu, int at, uint64_t now)
{
    struct arbiter_container *container = gpu->containers[at];
    struct turns_seen *seen = &gpu->turns.members[at].seen;
    uint32_t device = gpu->devices[at];
    *seen = (struct turns_seen){0};
    for (struct process *process = container->processes; process != NULL; process = process->next) {
        const struct vcuda_hint *hint = &container->hints->of[device][process->slot];
        /* busy_ns last: turns_observe() knows that the rest may be older. Acquire pairs with the
         * process's release of each word. */
        struct turns_report report = {
            .waiting = now < atomic_load_explicit(&hint->waits_until_ns, memory_order_acquire)
                           ? atomic_load_explicit(&hint->waiting, memory_order_acquire)
                           : 0,
            .in_flight = atomic_load_explicit(&hint->in_flight, memory_order_acquire),
            .since_ns = atomic_load_explicit(&hint->since_ns, memory_order_acquire),
            .progress_ns = atomic_load_explicit(&hint->progress_ns, memory_order_acquire),
            .longest_ns = atomic_load_explicit(&hint->longest_ns, memory_order_acquire),
            .held_ns = atomic_load_explicit(&hint->held_ns, memory_order_acquire),
            .busy_ns = atomic_load_explicit(&hint->busy_ns, memory_order_acquire),
        };
        turns_observe(seen, &process->of[device], &report, &gpu->turns.rules, gpu->turns.last, now);
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

/* The container that lost the turn is told before the one that got it. */
void gpu_step(struct gpu *gpu, const struct vcuda_world *world, uint64_t now)
{
    for (int at = 0; at < gpu->turns.count; at++)
        if (gpu->turns.members[at].present)
            observe(gpu, at, now);
    gpu->next = turns_step(&gpu->turns, now);
    for (int granted = 0; granted < 2; granted++)
        for (int at = 0; at < gpu->turns.count; at++)
            if (gpu->turns.members[at].present && gpu->turns.members[at].told.granted == granted)
                publish(gpu, at, world, now);
}

void gpu_mark_due(struct arbiter_container *container)
{
    for (uint32_t device = 0; device < container->count; device++)
        if (container->seats[device].gpu != NULL)
            container->seats[device].gpu->next = 0;
}
