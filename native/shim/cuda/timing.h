/* Measure launches with the driver's own timing events, one launch at a time.
 *
 * An event is recorded before and after the launch in its stream; a later call finds them done and
 * learns from the time in between. Never while the stream is being captured, and, should another
 * thread capture, in the relaxed mode in which that is not disturbed. When events fail again and
 * again, measuring ends for this process and the manager is told.
 *
 * Any thread: whoever moves the phase to TIMING_HELD owns the rest of the struct. Nobody waits.
 */
#ifndef SHIM_CUDA_TIMING_H
#define SHIM_CUDA_TIMING_H

#include "core/limiter.h"
#include "cuda_hooks.h"

#include <stdatomic.h>
#include <stdbool.h>

enum timing_phase {
    TIMING_IDLE = 0,
    TIMING_HELD,   /* one thread is at work on it */
    TIMING_FLYING, /* both events recorded, not seen done yet */
    TIMING_OFF,
};

struct timing {
    _Atomic(enum timing_phase) phase;
    CUevent start, end;
    unsigned long long context; /* the events belong to it and die with it */
    uint64_t key;               /* the kind of launch that is measured (core/cost.h) */
    uint64_t paid_ns;
    unsigned device;
    unsigned failures; /* in a row */
    uint64_t begun_ns;
    uint64_t polled_ns;
};

struct process;

/* What is measured: a launch of this kind, for which so much was paid. */
struct timing_subject {
    uint64_t key;
    uint64_t paid_ns;
    unsigned device;
    CUstream stream;
};

/* Is a measurement under way whose result may be had by waiting? */
static inline bool timing_flying(const struct timing *timing)
{
    return atomic_load_explicit(&timing->phase, memory_order_relaxed) == TIMING_FLYING;
}

/* Begin to measure the launch that follows, if possible now; then timing_end() must follow it. */
bool timing_begin(struct process *process, struct timing_subject subject, uint64_t now);
void timing_end(struct process *process, CUstream stream, CUresult launched);

/* Look whether a measurement is done; if so, learn from it and settle. Cheap when there is none. */
void timing_poll(struct process *process, uint64_t now);

#endif
