/* Which of the lengths that a kind was measured to have are its own, and not its neighbours'.
 *
 * A launch shorter than a time slice is rarely cut by the end of one: in so many cases as its
 * length goes into a slice. Then it shows a neighbour's slice in addition. So of measurements
 * beside neighbours as many as that are too long, and no others: if every second launch of a kind
 * looks twenty times as long as the shortest, it is.
 *
 * The last measurements of a kind, no clock. All zero is none.
 */
#ifndef SHIM_CORE_TIME_SPREAD_H
#define SHIM_CORE_TIME_SPREAD_H

#ifndef VCUDA_CDEF
#include <stdbool.h>
#include <stdint.h>
#endif

enum {
    OUTLIER_FILTER_SIZE = 32,
    OUTLIER_FILTER_LEAST = 4, /* fewer say nothing */
};

struct outlier_filter {
    float of[OUTLIER_FILTER_SIZE]; /* ns */
    uint32_t count;                /* ever entered */
};

void outlier_filter_enter(struct outlier_filter *filter, uint64_t measured_ns);

/* The longest length that is the kind's own, up to a time slice; 0 if nothing is known. explained:
 * what looks longer than that was cut. */
struct outlier_filter_own {
    uint64_t longest_ns;
    bool explained;
};

struct outlier_filter_own outlier_filter_own(const struct outlier_filter *filter);

#endif
