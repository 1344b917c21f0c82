/* Launches that are watched: who may touch which, and whether to wait for one. Knows no driver.
 *
 * Any thread: whoever moves the phase of a flight to FLIGHT_HELD owns the rest of it, but for its
 * atomic words, which others may read. Nobody waits. All zero is none.
 */
#ifndef SHIM_CORE_TIME_FLIGHT_H
#define SHIM_CORE_TIME_FLIGHT_H

#include "core/time/in_flight.h"
#include "core/time/logbook.h"

#include <stdbool.h>

enum {
    FLIGHTS = 48,
    FLIGHTS_OF_MARKS = 24, /* of them at most; the others are left to measurements */
};

enum flight_phase {
    FLIGHT_NONE = 0,
    FLIGHT_HELD,   /* one thread is at work on it */
    FLIGHT_FLYING, /* all recorded, not seen done yet */
};

/* One launch that is watched. */
struct flight {
    _Atomic(enum flight_phase) phase;
    _Atomic uint32_t device;
    _Atomic uint64_t key;       /* the kind that is measured (core/time/cost.h); 0: only a mark */
    _Atomic uint64_t work_ns;   /* that it stands for, in what was charged */
    _Atomic uint64_t polled_ns; /* when it was last looked at */
    atomic_bool given_up;       /* it is waited for no more, nor counted as in flight */
    atomic_bool outdated;       /* its kind has changed since: it says nothing of the next one */
    void *start, *end;          /* the driver's events around it */
    void *probe;                /* with one of those an empty pair (event_floor.h), or NULL */
    bool idle;                  /* nothing ran in its stream when it was launched */
    atomic_ullong context;      /* they belong to it and die with it */
    _Atomic uint64_t stream;    /* a name for it: its handle may be gone */
    _Atomic uint64_t begun_ns;
    _Atomic uint64_t guessed_ns; /* for other launches of its kind, which was not known */
    _Atomic uint32_t guesses;    /* how many those are */
    uint64_t paid_ns;            /* for the launch itself */
    struct logged logged;        /* if it may be longer than a time slice */
};

struct flights {
    struct flight of[FLIGHTS];
};

static inline enum flight_phase flight_phase(const struct flight *flight)
{
    /* Pairs with the release in flight_let_go(). */
    return atomic_load_explicit(&flight->phase, memory_order_acquire);
}

static inline bool flight_hold(struct flight *flight, enum flight_phase from)
{
    /* Pairs with the release in flight_let_go(): the new owner sees what the last one wrote. */
    return atomic_compare_exchange_strong_explicit(&flight->phase, &from, FLIGHT_HELD,
                                                   memory_order_acquire, memory_order_relaxed);
}

static inline void flight_let_go(struct flight *flight, enum flight_phase to)
{
    atomic_store_explicit(&flight->phase, to, memory_order_release);
}

/* A free one, held; NULL if there is none for this purpose. */
struct flight *flights_take(struct flights *flights, bool measured);

/* One that nobody waits for any more, held, to make room; NULL if there is none. */
struct flight *flights_take_given_up(struct flights *flights);

/* What it stands for is no longer counted. Once: later calls do nothing. */
void flight_uncount(struct flight *flight, struct in_flight *in_flight);

/* Is any taken? */
bool flights_any(const struct flights *flights);

/* Is a measurement of this kind under way on the device that is worth waiting for? */
bool flights_measure(struct flights *flights, unsigned device, uint64_t key);

/* A launch of a kind whose first measurement is under way on the device was paid for by guess: that
 * is put right with the measurement. False if there is none. */
bool flights_guess(struct flights *flights, unsigned device, uint64_t key, uint64_t paid_ns);

/* When the oldest of a context began that is worth waiting for; UINT64_MAX if there is none. */
uint64_t flights_oldest(const struct flights *flights, unsigned long long context);

/* Are all taken, and one of them worth waiting for? */
bool flights_full(const struct flights *flights);

/* Nobody is to wait any more for what is under way on this device: of this kind, or with 0 for
 * nothing at all. in_flight: of the device. */
void flights_give_up(struct flights *flights, unsigned device, uint64_t key,
                     struct in_flight *in_flight);

/* This kind is from now on another: what is under way of it is paid for, and teaches nothing. */
void flights_outdate(struct flights *flights, uint64_t key);

#endif
