/* How much GPU time a container may take: one virtual clock per device, paid in nanoseconds.
 *
 * The generic cell rate algorithm. The clock tells up to when GPU time has been paid for: a launch
 * of cost c at a rate r moves it by c / r. A launch waits while the clock is more than `burst`
 * ahead of the time, which bounds the work in flight. What the clock lags behind is time the
 * container may still use. Of an idle container it keeps no more than `burst`; what neighbours took
 * of its guarantee while it had work on the GPU it keeps, up to a second. What it was lent beyond
 * that is not owed to it; the lender has it back at once. All processes of the container move
 * the same word, by single atomic operations; there is nothing to unlock after a crash.
 *
 * A thread pays for many launches at once, for an allowance (cuda/time/allowance.h): how large, is
 * decided here.
 *
 * Times are ns of CLOCK_MONOTONIC, given by the caller: this unit knows no clock and never sleeps.
 */
#ifndef SHIM_CORE_TIME_LIMITER_H
#define SHIM_CORE_TIME_LIMITER_H

#include "vcuda_region.h"

enum {
    LIMITER_MILLION = 1000000,
    LIMITER_BURST_US = 20000,       /* where the configuration says 0 */
    LIMITER_LAG_NS = 1000000000,    /* what neighbours took is made good up to this */
    LIMITER_ALLOWANCE_NS = 1000000, /* of GPU time, at most, to one thread at once */
    LIMITER_ALLOWANCES_PER_BURST = 16,
    LIMITER_PRICE_BITS = 20,         /* after the point */
    LIMITER_SLICE_NS = 1024000,      /* longer launches share the GPU, shorter ones take turns */
    LIMITER_SLICE_MOST_NS = 2000000, /* where a GPU's slices are longer */
};

/* What is guaranteed now. rate_ppm: GPU time per time in millionths, at least 1. lead_ns: how far
 * the clock may be ahead for a launch to go: the burst, or less, even below 0, for a process that
 * lets others of the container go first (arbitration.h). lag_ns: of what neighbours took as much is
 * made good; 0 while more is lent than guaranteed. others_ppm: GPU time that others may have had
 * lately; a million where it is unknown, else neighbours is of how many processes, at most. price,
 * long_price: of a nanosecond that events show, of launches up to a slice and longer, with
 * LIMITER_PRICE_BITS after the point; all costs given to the functions below are priced.
 */
struct limiter_terms {
    uint32_t rate_ppm;
    uint64_t burst_ns;
    int64_t lead_ns;
    uint64_t lag_ns;
    uint32_t others_ppm;
    uint32_t neighbours;
    uint64_t price;
    uint64_t long_price;
};

/* The terms of a limit as the manager last wrote it: the rate it lends while that holds, then the
 * guarantee. */
struct limiter_terms limiter_terms(const struct vcuda_limit *limit, uint64_t now);

/* What work costs that takes so long by what events show. */
#ifdef VCUDA_CDEF /* knows no bodies */
uint64_t limiter_price(uint64_t price, uint64_t ns);
#else
static inline uint64_t limiter_price(uint64_t price, uint64_t ns)
{
    unsigned __int128 cost = (unsigned __int128)ns * price >> LIMITER_PRICE_BITS;
    return cost > INT64_MAX ? INT64_MAX : (uint64_t)cost;
}
#endif

/* What a launch costs that takes so long by what events show. */
uint64_t limiter_cost(struct limiter_terms terms, uint64_t ns);

/* The longest that so much work takes at this rate: the GPU has it all while nobody else wants it.
 */
uint64_t limiter_stretch(uint64_t cost, uint32_t rate_ppm);

/* How far the clock may lag behind the time, where the container is known to have had work on the
 * GPU up to `served_until`. */
uint64_t limiter_lag(uint64_t served_until, uint64_t clock, struct limiter_terms terms);

/* 0: go, and `cost` is paid. Otherwise nothing changed: ns to wait before asking again. */
uint64_t limiter_admit(struct vcuda_meter *meter, struct limiter_terms terms, uint64_t now,
                       uint64_t cost);

/* Pay without asking. */
void limiter_charge(struct vcuda_meter *meter, struct limiter_terms terms, uint64_t now,
                    uint64_t cost);

/* A launch turned out to cost `debt` more (or, below 0, less) than was paid. */
void limiter_settle(struct vcuda_meter *meter, struct limiter_terms terms, int64_t debt);

/* Work has ended that was charged so much. */
void limiter_retire(struct vcuda_meter *meter, uint64_t charged);

/* The container is known to have had work on the GPU up to this time. */
void limiter_serve(struct vcuda_meter *meter, uint64_t until);

/* A launch waits. A container that has paid ahead is not idle meanwhile: what turns out to have
 * cost less is given back whole. */
void limiter_wait(struct vcuda_meter *meter, uint64_t now);

/* The earliest end of work that ran for `elapsed`, submitted at `begun` behind work that ended at
 * `previous`; seen ended `now`. */
uint64_t limiter_end(uint64_t previous, uint64_t begun, uint64_t elapsed, uint64_t now);

/* The size of a thread's next allowance. Its last was of this size, 0 if it had none, and was spent
 * within `age`: it grows while the thread uses it up, so that one that ends takes little along. */
uint64_t limiter_allowance(struct limiter_terms terms, uint64_t last, uint64_t age);

#endif
