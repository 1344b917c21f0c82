/* What a launch waits for beside its turn: for its kind's first measurement, for work in flight,
 * for the edges of a window. Each wait is bounded, and none is taken while holding a lock. */
#ifndef SHIM_CUDA_TIME_WAITING_H
#define SHIM_CUDA_TIME_WAITING_H

#include "core/time/gang.h"
#include "cuda/time/throttle.h"

enum {
    MICROSECOND = 1000,
    MILLISECOND = 1000 * MICROSECOND,
    PAUSE_FIRST_NS = 50 * MICROSECOND, /* waiting for the GPU: for an event, that is */
};

/* How one launch waits to be paid for. */
struct wait {
    struct process *process;
    struct vcuda_meter *meter;
    struct in_flight *in_flight;
    struct sampling_window *window;
    const struct interruption *before; /* as the thread may be interrupted while it sleeps */
    struct limiter_terms terms;
    struct timing_look look;
    uint64_t key;
    struct arbitration_wait turn;
    uint64_t now;
    uint64_t pause;
    uint64_t crowded; /* waited so long for work in flight */
    uint64_t passed;  /* when a mark was last in flight */
    uint64_t asked;   /* to be paid */
    struct gang gang; /* of a process with collectives */
    bool ganged;      /* there are others in it */
    bool stopped;     /* with it, once */
    bool collective;
    bool known;   /* what the kind costs */
    bool several; /* streams have work */
    enum sampling_place place;
};

/* What may be in flight. */
uint64_t waiting_room(struct limiter_terms terms);

/* Is as much work in flight as may be, or, with 2, half of that? */
bool waiting_crowded(struct wait *wait, unsigned parts);

/* Is this one to be paid for by itself, and watched? Its cost must be known. */
bool waiting_alone(const struct launch *launch, const struct wait *wait);

/* May it go soon though there is no GPU time for it? Then it is paid for by itself, too. */
bool waiting_long(const struct wait *wait);

/* The gang of the launch's device, as it is now. */
void waiting_gang(const struct launch *launch, struct wait *wait);

/* ns to wait before the gang may go on; 0: now, or the launch has waited long enough. */
uint64_t waiting_gang_pause(struct wait *wait);

/* Do other devices wait for this launch, so that it has to go at once? */
bool waiting_urgent(const struct wait *wait);

/* It goes. If it is a collective, that counts. */
void waiting_gang_count(const struct launch *launch, struct wait *wait);

/* ns to wait before asking again; 0: nothing to wait for but the turn. */
uint64_t waiting_pause(struct launch *launch, struct wait *wait);

#endif
