/* Which launches to watch while several streams of a process have work.
 *
 * Whose the time was that kernels spent side by side can be told only where each of them is watched
 * (interval_union.h). Long ones always are. Short ones are too many: so some in a row are, now and
 * then, with nothing else in flight, and the others go for what those were found to cost.
 *
 * Whoever launches next waits for the beginning and the end of such a window, for a short time. If
 * that was in vain, kernels wait for one another, or neighbours have the GPU: after each failure
 * they come half as often.
 *
 * All zero is nothing seen. Any thread; relaxed, for the words order nothing but themselves.
 */
#ifndef SHIM_CORE_TIME_CENSUS_H
#define SHIM_CORE_TIME_CENSUS_H

#include "vcuda_region.h"

#ifndef VCUDA_CDEF
#include <stdbool.h>
#endif

enum {
    SAMPLING_LAUNCHES = 16,
    SAMPLING_SPACING = 8, /* work of so many of them comes between two, and at least: */
    SAMPLING_WORK_NS = 20000000,
    SAMPLING_FAILURES = 10, /* no more are counted */
    SAMPLING_MEMORY_S = 5,  /* so long after the last change of streams there are several */
};

/* Of one device. */
struct sampling_window {
    VCUDA_ATOMIC(uint64_t) stream;     /* of the last launch that paid; 0: there was none */
    VCUDA_ATOMIC(uint64_t) changed_ns; /* when that was another; 0: never */
    VCUDA_ATOMIC(uint64_t) work_ns;    /* of launches that nobody watched, since the last window */
    VCUDA_ATOMIC(uint32_t) failures;
    VCUDA_ATOMIC(uint32_t) left; /* launches to come, and the first after it */
};

/* What a launch is to a window. */
enum sampling_place { SAMPLING_NONE, SAMPLING_FIRST, SAMPLING_WITHIN, SAMPLING_AFTER };

/* A launch pays, in this stream, which is not 0: do several streams have work, as far as was seen
 * lately? When that begins there is a window. */
bool sampling_window_streams(struct sampling_window *window, uint64_t stream, uint64_t now);

/* The place of the next launch. */
enum sampling_place sampling_window_next(struct sampling_window *window);

/* So much was launched unwatched, lately launches of such a cost: is it time? */
void sampling_window_count(struct sampling_window *window, uint64_t work, uint64_t cost);

/* It could not begin, or end, with nothing else in flight. */
void sampling_window_failed(struct sampling_window *window);

#endif
