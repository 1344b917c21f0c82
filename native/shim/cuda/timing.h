/* Watch launches with the driver's own events: what they took, and that they are done.
 *
 * A launch that is measured has an event before and after it in its stream; one that only carries a
 * mark for the work before it (in_flight.h) has the one after it. A later call finds them done.
 * Never while the stream is being captured, and, should another thread capture, in the relaxed mode
 * in which that is not disturbed. When events fail again and again, all this ends for this process
 * and the manager is told.
 *
 * Any thread: whoever moves the phase of a flight to FLIGHT_HELD owns the rest of it, but for its
 * atomic words, which others may read. Nobody waits.
 */
#ifndef SHIM_CUDA_TIMING_H
#define SHIM_CUDA_TIMING_H

#include "core/limiter.h"
#include "cuda_hooks.h"

#include <stdatomic.h>
#include <stdbool.h>

enum {
    TIMING_FLIGHTS = 16,
    TIMING_MARKS = 12, /* of them at most; the others are left to measurements */
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
    _Atomic uint64_t key;       /* the kind that is measured (core/cost.h); 0: only a mark */
    _Atomic uint64_t work_ns;   /* that it stands for, in what was charged */
    _Atomic uint64_t polled_ns; /* when it was last looked at */
    atomic_bool given_up;       /* it was waited for long enough: nobody waits for it any more */
    CUevent start, end;
    unsigned long long context; /* the events belong to it and die with it */
    uint64_t paid_ns;           /* for the launch itself */
    uint64_t begun_ns;
};

struct timing {
    struct flight flights[TIMING_FLIGHTS];
    atomic_uint failures; /* in a row */
    atomic_bool off;
};

struct process;

/* What is watched: a launch of this kind (0: it only carries a mark), for which so much was paid,
 * and which stands for so much work in flight. */
struct timing_subject {
    uint64_t key;
    uint64_t paid_ns;
    uint64_t work_ns;
    unsigned device;
    CUstream stream;
};

/* Begin to watch the launch that follows, if possible now; then timing_end() must follow it. NULL
 * if not. Takes over the count of the work. */
struct flight *timing_begin(struct process *process, struct timing_subject subject, uint64_t now);
void timing_end(struct process *process, struct flight *flight, CUstream stream, CUresult launched);

/* Look which flights are done, learn from them and settle: measurements, and, where the work in
 * flight is crowded, marks. Cheap when there is none, or when somebody has looked just now. */
void timing_poll(struct process *process, unsigned device, bool crowded, uint64_t now);

/* Is a measurement of this kind under way that is worth waiting for? */
bool timing_measures(const struct timing *timing, uint64_t key);

/* Are all flights taken, and one of them worth waiting for? */
bool timing_full(const struct timing *timing);

/* Nobody is to wait any more for what is under way on this device, nor, with a key, for another
 * kind; what it stands for is no longer counted. */
void timing_give_up(struct process *process, unsigned device, uint64_t key);

#endif
