/* Watch launches with the driver's own events: what they took, and that they are done.
 *
 * A launch that is measured has an event before and after it in its stream; one that only carries a
 * mark for the work before it (core/time/in_flight.h) has the one after it. A later call finds them
 * done. Never while the stream is being captured, and, should another thread capture, in the
 * relaxed mode in which that is not disturbed. Where events fail again and again in a stream, that
 * one is charged by elapsed time (core/time/unmeasured.h) and the manager is told.
 *
 * Any thread; nothing waits. A look is not interrupted (runtime/interruption.h).
 */
#ifndef SHIM_CUDA_TIME_TIMING_H
#define SHIM_CUDA_TIME_TIMING_H

#include "core/time/event_floor.h"
#include "core/time/event_pool.h"
#include "core/time/flight.h"
#include "core/time/limiter.h"
#include "core/time/unmeasured.h"
#include "cuda/time/gpu_time.h"
#include "cuda_hooks.h"

struct timing {
    struct flights flights;
    struct gpu_time times[VCUDA_DEVICES];
    struct event_floor floors[VCUDA_DEVICES];
    struct event_pools events;
    struct unmeasured unmeasured;
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
    unsigned long long context; /* timing_context() */
};

/* Who is the current context? Its number where the driver has one, for handles recur. 0: none. */
unsigned long long timing_context(void);

/* In a stream where events fail: charge the time that work was there since the last look, beside
 * what was paid for it. held: a launch was held back since then. */
void timing_see_elapsed(struct process *process, struct timing_subject subject, bool held,
                        uint64_t now);

/* There: a launch follows, for which, and others before it, paid_ns is paid; it was looked at now.
 * False: not such a stream. */
bool timing_charge_elapsed(struct process *process, struct timing_subject subject, uint64_t now);

/* The program has waited for a stream (pool_stream_key(), GAP_ANY: for all): such work is done. */
void timing_waited(struct process *process, unsigned device, uint64_t stream, uint64_t now);

/* Begin to watch the launch that follows, if possible now; then timing_end() must follow it. NULL
 * if not. Takes over the count of the work. */
struct flight *timing_begin(struct process *process, struct timing_subject subject, uint64_t now);
void timing_end(struct process *process, struct flight *flight, CUstream stream, CUresult launched);

/* A look at the launches that are watched on a device. marks: at those, too, that only carry a
 * mark, which matters where much is in flight. every_ns: at those of known cost no more often; at
 * the others more often, for somebody may wait. context: timing_context() where it has been asked
 * already, which the look does if need be. */
struct timing_look {
    unsigned device;
    bool marks;
    uint64_t every_ns;
    uint64_t now;
    unsigned long long context;
};

/* Look which of them are done, learn from those and settle. Cheap when there is none to look at. */
void timing_poll(struct process *process, struct timing_look *look);

/* A context may be about to end: what is done in it is settled while its events can be
 * asked. Returns its number, 0 if nothing is watched. Calls the driver. */
unsigned long long timing_context_ends(struct process *process, CUcontext context);

/* It has ended, and its events with it. */
void timing_context_ended(struct process *process, unsigned long long number);

/* Is a launch being measured whose cost nobody knows yet? */
bool timing_explores(struct process *process, unsigned device);

#endif
