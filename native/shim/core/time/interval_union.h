/* Which times the GPU is known to have worked for us, so that none is charged twice.
 *
 * Kernels of several streams run at the same time, and the events around each show its length as
 * the others have drawn it out. The GPU's time went by once. So a launch is charged the part of its
 * time that no launch before it was charged for: all of them together pay for the union of their
 * times, in whatever order they are seen to have ended, and work beside them makes none cheaper.
 *
 * Some times are remembered; of what is older nothing is known, and nothing is left off for it. All
 * zero is none. One thread at a time.
 */
#ifndef SHIM_CORE_TIME_COVER_H
#define SHIM_CORE_TIME_COVER_H

#ifndef VCUDA_CDEF
#include <stdint.h>
#endif

enum { INTERVAL_UNION_SIZE = 32 };

/* From `since` up to `until`, ns of any one clock. */
struct union_interval {
    int64_t since, until;
};

struct interval_union {
    struct union_interval of[INTERVAL_UNION_SIZE]; /* in order, apart from each other */
    uint32_t count;
};

/* Cover this time, too. Returns how much of it was not. */
uint64_t interval_union_add(struct interval_union *cover, int64_t since, int64_t until);

#endif
