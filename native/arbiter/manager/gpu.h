/* One GPU: the containers on it, between their pages and the decisions of core/turns.h; and several
 * of them together where containers run collectives on them (core/gang.h): for a second after a
 * container launched the last one.
 */
#ifndef ARBITER_MANAGER_GPU_H
#define ARBITER_MANAGER_GPU_H

#include "core/gang.h"
#include "manager/arbiter.h"

/* A live process of a container; the container owns it. */
struct process {
    struct process *next;
    uint32_t slot;
    int pidfd; /* -1: none */
    struct turns_process of[VCUDA_DEVICES];
    uint32_t collectives[VCUDA_DEVICES]; /* launched, when it was last looked at */
};

struct seat {
    struct gpu *gpu; /* NULL: no turns on this device */
    int member;
};

struct arbiter_container {
    struct arbiter_container *next;
    struct vcuda_turns *words;
    const struct vcuda_hints *hints;
    struct process *processes;
    uint32_t count; /* devices */
    struct seat seats[VCUDA_DEVICES];
    uint64_t collective_ns[VCUDA_DEVICES]; /* when one was last launched, or in flight */
    struct turns_gang gang;
    int ring;
    bool watched;   /* its ring is waited for */
    unsigned rings; /* since rings_since */
    uint64_t rings_since, muted_until, muted_look;
};

struct gpu {
    struct turns_gpu turns;
    uint64_t next; /* look at it then; UINT64_MAX: when told */
    struct arbiter_container *containers[TURNS_MEMBERS];
    uint32_t devices[TURNS_MEMBERS]; /* of that container */
};

/* Take, change or give up the place of one device. 0 or -ENOSPC and nothing changed. */
int gpu_seat(struct gpu *gpu, struct arbiter_container *container, uint32_t device, double weight,
             double ceiling);
void gpu_unseat(struct arbiter_container *container, uint32_t device);

/* Unseat it, and let it launch for good. */
void gpu_ungovern(struct arbiter_container *container, uint32_t device,
                  const struct vcuda_world *world);

/* Which containers are gangs now. NULL: none. */
const struct turns_gang *gpu_gangs(struct arbiter_container *containers, uint64_t now);

/* Read all hints of these GPUs, decide, and write the words; threads that may go are woken. */
void gpu_step(struct gpu *const *gpus, unsigned count, const struct turns_gang *gangs,
              const struct vcuda_world *world, uint64_t now);

/* A process is to be charged for what it does from now on, or has done until now. */
void gpu_process_comes(struct arbiter_container *container, struct process *process, uint64_t now);
void gpu_process_goes(struct arbiter_container *container, struct process *process, uint64_t now);

/* All devices of a container are looked at next. */
void gpu_mark_due(struct arbiter_container *container);

#endif
