/* Streams in which the driver records no events, and what work there is charged: the time that
 * passes while it is there.
 *
 * A stream of a green context may refuse events that belong to the primary one. After three
 * failures in a row a stream is left alone for a while; all others are measured as ever. What is
 * known of work in it is whether the stream is idle whenever the program launches there or has
 * waited for it, and while a launch is held back. The time between two such moments, if it was not
 * idle at the first, is charged,
 * less what was paid for launches meanwhile: never less than those. Neighbours' time slices are in
 * it, and up to a second of idleness that nobody saw: it is the price of what cannot be measured.
 *
 * Any thread: a short mutex. All zero is none. Times are ns given by the caller.
 */
#ifndef SHIM_CORE_TIME_UNMEASURED_H
#define SHIM_CORE_TIME_UNMEASURED_H

#include "vcuda_region.h"

#ifndef VCUDA_CDEF
#include <pthread.h>
#include <stdbool.h>
#endif

enum {
    UNMEASURED_STREAMS = 32,          /* of more, the one that failed longest ago is forgotten */
    UNMEASURED_FAILURES = 3,          /* in a row */
    UNMEASURED_AGAIN_NS = 1000000000, /* so long after the last failure events are tried again */
    UNMEASURED_MOST_NS = 1000000000,  /* charged for the time between two moments */
};

enum { UNMEASURED_ANY = 0 }; /* every stream */

struct unmeasured_stream {
    uint64_t context, stream; /* numbers, neither 0 */
    uint64_t failed_ns;       /* the last time */
    uint32_t failures;        /* 0: the place is free */
    uint32_t device;
    uint64_t since_ns; /* charged until then; 0: it was idle */
    uint64_t paid_ns;  /* for launches since */
};

struct unmeasured {
    VCUDA_ATOMIC(uint32_t) count; /* places taken, ever: 0 as a rule */
    struct unmeasured_stream of[UNMEASURED_STREAMS];
#ifdef VCUDA_CDEF
    ...;
#else
    pthread_mutex_t mutex;
#endif
};

/* Events have failed in this stream. True if it is left alone from now on. */
bool unmeasured_fail(struct unmeasured *unmeasured, struct unmeasured_stream stream, uint64_t now);

/* They have not failed. */
void unmeasured_succeed(struct unmeasured *unmeasured, uint64_t context, uint64_t stream);

/* Is it left alone? */
bool unmeasured_has(struct unmeasured *unmeasured, uint64_t context, uint64_t stream, uint64_t now);

/* A look at a stream: is it idle, and was a launch held back since the last? */
struct unmeasured_look {
    bool idle, held;
    uint64_t now;
};

/* Returns what is to be charged for the time since the last look. While a launch is held back, that
 * is the time that the stream is seen busy: or a wait would be charged, and be followed by a longer
 * one. */
uint64_t unmeasured_see(struct unmeasured *unmeasured, uint64_t context, uint64_t stream,
                        struct unmeasured_look look);

/* A launch there, right after a look, for which so much is paid. */
void unmeasured_launch(struct unmeasured *unmeasured, uint64_t context, uint64_t stream,
                       uint64_t paid_ns, uint64_t now);

/* Everything in it, or in all streams on the device, has ended. Returns the same. */
uint64_t unmeasured_waited(struct unmeasured *unmeasured, uint32_t device, uint64_t stream,
                           uint64_t now);

/* That context has ended. */
void unmeasured_context_ended(struct unmeasured *unmeasured, uint64_t context);

#endif
