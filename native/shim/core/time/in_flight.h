/* How much of the work that this process launched on a device is not known to be done.
 *
 * Counted in what was charged, when an allowance ends (cuda/time/allowance.h). Now and then a
 * launch carries a mark (flight.h), which stands for the work since the last one and takes it out
 * again when the GPU has come past it. Streams run at the same time, and a mark knows only of its
 * own: the figure is right on average, and to within the work of a mark.
 *
 * All zero is nothing. Any thread; relaxed, for the words order nothing but themselves.
 */
#ifndef SHIM_CORE_TIME_IN_FLIGHT_H
#define SHIM_CORE_TIME_IN_FLIGHT_H

#include <stdatomic.h>
#include <stdint.h>

struct in_flight {
    _Atomic uint64_t work_ns;     /* launched, not known to be done */
    _Atomic uint64_t unmarked_ns; /* of that: no mark stands for it yet */
    _Atomic uint64_t marked_at_ns;
    _Atomic uint64_t ended_ns; /* when the last measured launch ended, at the earliest */
};

static inline uint64_t in_flight_work(const struct in_flight *in_flight)
{
    return atomic_load_explicit(&in_flight->work_ns, memory_order_relaxed);
}

static inline uint64_t in_flight_unmarked(const struct in_flight *in_flight)
{
    return atomic_load_explicit(&in_flight->unmarked_ns, memory_order_relaxed);
}

/* So much more was launched. */
static inline void in_flight_add(struct in_flight *in_flight, uint64_t work)
{
    atomic_fetch_add_explicit(&in_flight->work_ns, work, memory_order_relaxed);
    atomic_fetch_add_explicit(&in_flight->unmarked_ns, work, memory_order_relaxed);
}

enum { IN_FLIGHT_MARK_NS = 5000000 }; /* so much time after a mark comes another */

/* What a mark is to stand for now; 0 if it is less than `least` and there was a mark just now. Each
 * is taken out by in_flight_done() or given back by in_flight_unmark(), once. */
static inline uint64_t in_flight_mark(struct in_flight *in_flight, uint64_t least, uint64_t now)
{
    uint64_t last = atomic_load_explicit(&in_flight->marked_at_ns, memory_order_relaxed);
    if (atomic_load_explicit(&in_flight->unmarked_ns, memory_order_relaxed) < least &&
        now - last < IN_FLIGHT_MARK_NS)
        return 0;
    atomic_store_explicit(&in_flight->marked_at_ns, now, memory_order_relaxed);
    return atomic_exchange_explicit(&in_flight->unmarked_ns, 0, memory_order_relaxed);
}

static inline void in_flight_unmark(struct in_flight *in_flight, uint64_t work)
{
    atomic_fetch_add_explicit(&in_flight->unmarked_ns, work, memory_order_relaxed);
}

static inline void in_flight_done(struct in_flight *in_flight, uint64_t work)
{
    atomic_fetch_sub_explicit(&in_flight->work_ns, work, memory_order_relaxed);
}

#endif
