/* The arbiter: one thread of the agent that grants each GPU to one container at a time.
 *
 * It reads the hints of the processes that live, takes the decisions of core/turns.h, and writes
 * the words of each container (vcuda_turns.h). It sleeps until a process rings, a process dies, the
 * manager calls, or a decision falls due: it does nothing for a GPU that no container wants. A
 * container that rings more than 20,000 times a second is read each millisecond instead.
 *
 * It trusts no container: hints count against their writer (core/turns.h), a ring says no more
 * than "look", and nothing in the words is read back. It needs no Python and no GIL, runs as
 * SCHED_FIFO where that is allowed, and calls nothing that blocks while it holds its lock.
 *
 * In a simulation it lives by the clock of `world`: it waits there, and reads its descriptors at
 * each waking, each 10 ms at least.
 *
 * Any thread may call. Errors are negated errnos.
 */
#ifndef ARBITER_MANAGER_ARBITER_H
#define ARBITER_MANAGER_ARBITER_H

#include "vcuda_turns.h"

#ifndef VCUDA_CDEF
#include <stdbool.h>
#endif

enum { ARBITER_GPUS = 64 };

struct arbiter;
struct arbiter_container;

/* NULL: the real world. Starts the thread. */
int arbiter_start(const struct vcuda_world *world, struct arbiter **out);

/* Ends the thread and forgets all containers. Their words stay as they are: the lease runs out. */
void arbiter_stop(struct arbiter *self);

/* One device of a container. */
struct arbiter_seat {
    uint32_t gpu;   /* the caller's number of the physical GPU, below ARBITER_GPUS */
    double weight;  /* guaranteed, a part of 1; 0: no turns on this device, it is always granted */
    double ceiling; /* 1 or more: none */
};

/* A container, with its words (writable; another arbiter may have written them before), the hints
 * behind its books, and the reading end of its pipe, which is non-blocking. All three stay the
 * caller's, and in place until arbiter_leave(). The caller keeps a writing end open, too: a pipe
 * without one is read each 100 ms. `seats`: in the order of the configuration's devices.
 * -EINVAL: a seat is none; -ENOSPC: 128 containers are on the GPU. */
int arbiter_join(struct arbiter *self, struct vcuda_turns *words, const struct vcuda_hints *hints,
                 int ring, const struct arbiter_seat *seats, uint32_t count,
                 struct arbiter_container **out);

/* Limits have changed. */
void arbiter_weigh(struct arbiter *self, struct arbiter_container *container,
                   const struct arbiter_seat *seats, uint32_t count);

/* After it nothing of the container is touched any more. */
void arbiter_leave(struct arbiter *self, struct arbiter_container *container);

/* A process has a slot. Its pidfd is duplicated; -1: its death is told by the manager alone. A
 * container without processes is not there for the others. */
int arbiter_process(struct arbiter *self, struct arbiter_container *container, uint32_t slot,
                    int pidfd);

/* The manager freed the slot. The thread may have seen the death before. */
void arbiter_process_gone(struct arbiter *self, struct arbiter_container *container, uint32_t slot);

/* A process outside of turns uses this GPU, or none does any more. */
void arbiter_foreign(struct arbiter *self, uint32_t gpu, bool foreign);

/* The container took GPU time outside of its turns: that counts as the time of turns does, up to
 * where none is charged ahead any further (struct turns_rules). Below 0: of the time that it was
 * charged, others outside of turns had so much. */
void arbiter_charge(struct arbiter *self, struct arbiter_container *container, uint32_t device,
                    int64_t ns);

/* Since the container joined. Zeros where the device has no turns. */
struct arbiter_account {
    uint64_t charged_ns; /* of GPU time */
    uint64_t turns;      /* granted */
    uint64_t waited_ns;  /* for a turn */
    uint64_t late;       /* turns taken back with work in flight */
    double owed_ns;      /* GPU time that it is behind the others, by weight; below 0: ahead */
};

void arbiter_account(struct arbiter *self, struct arbiter_container *container, uint32_t device,
                     struct arbiter_account *out);

/* How often it has looked at a GPU: the same number while no container wants one. */
uint64_t arbiter_looks(struct arbiter *self);

#endif
