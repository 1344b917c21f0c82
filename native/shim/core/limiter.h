/* How much GPU time a container may take: one virtual clock per device, paid in nanoseconds.
 *
 * The generic cell rate algorithm. The clock tells up to when GPU time has been paid for: a launch
 * of cost c at a rate r moves it by c / r. A launch waits while the clock is more than `burst`
 * ahead of the time, which bounds the work in flight, and the clock is never left more than `burst`
 * behind, which bounds what an idle container saves up. All processes of the container move the
 * same word, by single atomic operations; there is nothing to unlock after a crash.
 *
 * Times are ns of CLOCK_MONOTONIC, given by the caller: this unit knows no clock and never sleeps.
 */
#ifndef SHIM_CORE_LIMITER_H
#define SHIM_CORE_LIMITER_H

#include "vcuda_region.h"

enum {
    LIMITER_MILLION = 1000000,
    LIMITER_BURST_US = 20000, /* where the configuration says 0 */
};

/* What is promised now. rate_ppm: GPU time per time in millionths, at least 1. lead_ns: the burst,
 * or less, even below 0, for a launch that waits for work in flight to drain. */
struct limiter_terms {
    uint32_t rate_ppm;
    uint64_t burst_ns;
    int64_t lead_ns;
};

/* The terms of a limit as the manager last wrote it. */
struct limiter_terms limiter_terms(const struct vcuda_limit *limit);

/* 0: go, and `cost` is paid. Otherwise nothing changed: ns to wait before asking again. */
uint64_t limiter_admit(struct vcuda_meter *meter, struct limiter_terms terms, uint64_t now,
                       uint64_t cost);

/* Pay without asking. */
void limiter_charge(struct vcuda_meter *meter, struct limiter_terms terms, uint64_t now,
                    uint64_t cost);

/* A launch turned out to cost `debt` more (or, below 0, less) than was paid. */
void limiter_settle(struct vcuda_meter *meter, struct limiter_terms terms, int64_t debt);

#endif
