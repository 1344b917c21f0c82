/* Which process of a container launches next: they take turns.
 *
 * The GPU runs one process at a time. While siblings have work on it together, each looks slower
 * than it is, and whoever asks most often for the container's clock (limiter.h) gets most of it. So
 * one process has the turn and launches up to the burst, and no longer than twice its time while
 * others wait; another takes over when what was paid has drained: then the GPU is its own, and what
 * it measures is what its kernels take. Of those who wait, the one that has had least GPU time goes
 * first; the others stand back by half a burst, no longer, so that one that died or sleeps keeps
 * nobody. So all that always have work get the same, whatever they launch (start-time fair
 * queueing). Example: in its turn at 50 % one that waits for each kernel of 2 ms gets 20 ms of GPU
 * time, for the clock runs meanwhile, one that launches ten at once gets 12, and then has the more
 * turns. A process whose launch is of unknown cost may hold the turn until that is measured, for
 * short times that it has to renew.
 *
 * Kernels may wait for one another, and then no GPU time that the container owes will ever be paid:
 * after some seconds in which nothing got through one launch is let through. After more, the more
 * it owed at their beginning: so even kernels that last longer than this get their share and no
 * more. What it comes to owe meanwhile does not count, for a kernel that waits takes the GPU.
 *
 * Words of the meter and one of the logbook, each moved by single atomic operations and each only a
 * hint: whatever is lost or stale, the limit is the clock's, and it holds. Nobody sleeps here.
 */
#ifndef SHIM_CORE_TIME_TURN_H
#define SHIM_CORE_TIME_TURN_H

#include "core/time/limiter.h"

enum {
    ARBITRATION_BURSTS = 2, /* the longest turn while others wait: so many times the burst */
    ARBITRATION_LOOK_FIRST_NS = 100000, /* while another holds the turn, look again so soon */
    ARBITRATION_LOOK_NEXT_NS = 300000,  /* and at last as often, who is next */
    ARBITRATION_LOOK_NS = 5000000,      /* and who is not */
    ARBITRATION_HOLD_NS = 100000000,    /* for one time, from the last sign of life */
    ARBITRATION_SLOT_MASK = 1023,       /* of `turn`: the slot; above, when it was last used */
    ARBITRATION_PATIENCE_S = 10,        /* after which one launch of the container is let through */
};

/* One thread's wait for its turn. served: arbitration_served() when it began. refused: it was,
 * once. since: it waits, and no launch of the container has got through. owed: how far ahead of the
 * time the clock was then. urgent: it goes at once, others wait for it. */
struct arbitration_wait {
    uint32_t slot;
    uint64_t begun;
    uint64_t served;
    uint8_t refused;
    uint8_t urgent;
    uint64_t since;
    uint64_t owed;
};

/* A launch begins to wait: what its process counts as having had, at least 1. `served`: the
 * process's own count. `latest`: the container's, of whoever launched last. A process that lags
 * behind that by more than a turn was idle, and is not owed the difference. Example: a process
 * that begins beside one that has run for an hour. */
uint64_t arbitration_served(const VCUDA_ATOMIC(uint64_t) * latest, VCUDA_ATOMIC(uint64_t) * served,
                            struct limiter_terms terms);

/* It goes, and has paid so much. */
void arbitration_serve(VCUDA_ATOMIC(uint64_t) * latest, VCUDA_ATOMIC(uint64_t) * served,
                       const struct arbitration_wait *wait, uint64_t cost);

/* 0: go, and `cost` is paid. Otherwise only the wait has changed: ns until asking again. */
uint64_t arbitration_admit(struct vcuda_meter *meter, struct limiter_terms terms,
                           struct arbitration_wait *wait, uint64_t now, uint64_t cost);

/* Nobody else for now (`holding`), or not any more. Nothing if the turn is another's. */
void arbitration_hold(struct vcuda_meter *meter, uint32_t slot, uint64_t now, uint8_t holding);

/* Has no other process of the container had work on the GPU since then, as far as turns tell? */
uint8_t arbitration_alone(const struct vcuda_meter *meter, uint32_t slot, uint64_t since);

#endif
