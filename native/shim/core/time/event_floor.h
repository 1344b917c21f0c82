/* What a pair of timing events shows around nothing, to be subtracted from what it shows.
 *
 * On real GPUs a pair around nothing shows 2 to 5 us. Where the stream was idle at the first event
 * it shows more: that event is stamped while the host is still pushing what comes next. The first
 * measurements of a device carry an empty pair of events each: behind the launch, where the stream
 * was busy, or before it, where it was idle. The least of each is the floor: a longer one shows the
 * host, too, and what a kind costs follows from its least measurements. While there are few, a step
 * of the events' resolution less. Example: a kernel of 10 us shows 13 us in a busy stream with a
 * floor of 3 us, and 19 us in one that was idle with one of 9 us.
 *
 * Any thread. All zero is nothing known, which subtracts nothing.
 */
#ifndef SHIM_CORE_TIME_EVENT_FLOOR_H
#define SHIM_CORE_TIME_EVENT_FLOOR_H

#include "vcuda_region.h"

#ifndef VCUDA_CDEF
#include <stdbool.h>
#endif

enum {
    EVENT_FLOOR_SAMPLES = 16,
    EVENT_FLOOR_FEW = 4,         /* fewer may all be too long */
    EVENT_FLOOR_MOST_NS = 20000, /* a pair that shows more shows something else */
    EVENT_FLOOR_LEAST_NS = 500,  /* what is left of a measurement, at least: events' resolution */
};

enum event_start { EVENT_START_BUSY, EVENT_START_IDLE, EVENT_STARTS };

/* Of one device. */
struct event_floor {
    VCUDA_ATOMIC(uint32_t) count[EVENT_STARTS];
    VCUDA_ATOMIC(uint32_t) ns[EVENT_STARTS][EVENT_FLOOR_SAMPLES]; /* and 1; 0: none */
};

/* Are more empty pairs needed of streams in this state? */
bool event_floor_wants(const struct event_floor *floor, enum event_start start);

/* An empty pair showed so much. */
void event_floor_enter(struct event_floor *floor, enum event_start start, uint64_t ns);

/* What a launch took for which a pair of events shows so much. */
uint64_t event_floor_subtract(const struct event_floor *floor, enum event_start start, uint64_t ns);

#endif
