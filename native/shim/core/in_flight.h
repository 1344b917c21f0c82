/* How much of the work that this process launched on a device is not known to be done.
 *
 * Counted in what was charged, when an allowance ends (cuda/allowance.h). Now and then a launch
 * carries a mark (flight.h), which stands for the work since the last one and takes it out again
 * when the GPU has come past it. Streams run at the same time, and a mark knows only of its own:
 * the figure is right on average, and to within the work of a mark.
 *
 * All zero is nothing. Any thread; relaxed, for the words order nothing but themselves.
 */
#ifndef SHIM_CORE_IN_FLIGHT_H
#define SHIM_CORE_IN_FLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct in_flight {
    _Atomic uint64_t work_ns;     /* launched, not known to be done */
    _Atomic uint64_t unmarked_ns; /* of that: no mark stands for it yet */
    _Atomic uint64_t marked_at_ns;
    _Atomic uint64_t ended_ns;     /* when the last measured launch ended, at the earliest */
    _Atomic uint64_t stream;       /* of the last launch that paid; 0: there was none */
    _Atomic uint64_t mixed_ns;     /* when that last changed; 0: never */
    _Atomic uint64_t uncounted_ns; /* work since the last census */
    _Atomic uint32_t failures;     /* of a census */
    atomic_int census;             /* launches of one that are to come, and one */
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

enum {
    IN_FLIGHT_MIXED_S = 5,
    IN_FLIGHT_CENSUS = 16,
    IN_FLIGHT_CENSUS_NS = 20000000, /* work between two of them, at least */
    IN_FLIGHT_FAILURES = 10,        /* no more are counted */
};

/* Watch so many launches in a row, from the next on. */
static inline void in_flight_take_census(struct in_flight *in_flight)
{
    atomic_store_explicit(&in_flight->uncounted_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&in_flight->census, IN_FLIGHT_CENSUS + 1, memory_order_relaxed);
}

/* So much was launched since the last payment, of late launches of such a cost: is it time for a
 * census? */
static inline void in_flight_count(struct in_flight *in_flight, uint64_t work, uint64_t cost)
{
    uint64_t many = cost * IN_FLIGHT_CENSUS * 8;
    uint64_t enough = many > IN_FLIGHT_CENSUS_NS ? many : IN_FLIGHT_CENSUS_NS;
    uint64_t before =
        atomic_fetch_add_explicit(&in_flight->uncounted_ns, work, memory_order_relaxed);
    uint32_t failures = atomic_load_explicit(&in_flight->failures, memory_order_relaxed);
    if (before + work >= enough << failures)
        in_flight_take_census(in_flight);
}

/* The launches of one could not be told from others, and others waited for it: have fewer. */
static inline void in_flight_census_failed(struct in_flight *in_flight)
{
    uint32_t failures = atomic_load_explicit(&in_flight->failures, memory_order_relaxed);
    atomic_store_explicit(&in_flight->census, 0, memory_order_relaxed);
    if (failures < IN_FLIGHT_FAILURES)
        atomic_store_explicit(&in_flight->failures, failures + 1, memory_order_relaxed);
}

/* A launch pays, in this stream, which is not 0: are there several streams with work, by what was
 * seen lately? */
static inline bool in_flight_mixed(struct in_flight *in_flight, uint64_t stream, uint64_t now)
{
    uint64_t last = atomic_exchange_explicit(&in_flight->stream, stream, memory_order_relaxed);
    uint64_t mixed = atomic_load_explicit(&in_flight->mixed_ns, memory_order_relaxed);
    bool still = mixed != 0 && now - mixed < UINT64_C(1000000000) * IN_FLIGHT_MIXED_S;
    if (last == 0 || last == stream)
        return still;
    atomic_store_explicit(&in_flight->mixed_ns, now, memory_order_relaxed);
    if (!still)
        in_flight_take_census(in_flight);
    return true;
}

/* Which launch of a census is this? From IN_FLIGHT_CENSUS, the first of it, down to 1; 0 is the
 * first after it, and below it is none. */
static inline int in_flight_census(struct in_flight *in_flight)
{
    int left = atomic_load_explicit(&in_flight->census, memory_order_relaxed);
    while (left > 0 &&
           !atomic_compare_exchange_weak_explicit(&in_flight->census, &left, left - 1,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    return left - 1;
}

#endif
