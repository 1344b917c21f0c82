#include "core/time/outlier_filter.h"

#include "core/time/limiter.h"

enum {
    MARGIN = 4,      /* times as many may be cut as are expected to be, */
    BY_CHANCE = 1,   /* and one more, */
    ONE_OF_MANY = 8, /* and of so many another one */
};

void outlier_filter_enter(struct outlier_filter *filter, uint64_t measured_ns)
{
    filter->of[filter->count % OUTLIER_FILTER_SIZE] = (float)measured_ns;
    filter->count++;
    if (filter->count == 2 * OUTLIER_FILTER_SIZE)
        filter->count = OUTLIER_FILTER_SIZE;
}

/* Into order, from below. Returns how many there are. */
static unsigned sort(const struct outlier_filter *filter, float sorted[OUTLIER_FILTER_SIZE])
{
    unsigned count = filter->count < OUTLIER_FILTER_SIZE ? filter->count : OUTLIER_FILTER_SIZE;
    for (unsigned taken = 0; taken < count; taken++) {
        unsigned place = taken;
        for (; place > 0 && sorted[place - 1] > filter->of[taken]; place--)
            sorted[place] = sorted[place - 1];
        sorted[place] = filter->of[taken];
    }
    return count;
}

/* At most so many are cut for each that is not. In slices of 1,024 us that is 41 for a kernel of
 * 1 ms: it begins where the one before it ended, and the end of nearly no slice is behind its own.
 */
static float most_cut(float length)
{
    float room = LIMITER_SLICE_NS - length;
    float most = MARGIN * length / LIMITER_SLICE_MOST_NS;
    return room > 0 && length / room > most ? length / room : most;
}

struct outlier_filter_own outlier_filter_own(const struct outlier_filter *filter)
{
    struct outlier_filter_own own = {0};
    float sorted[OUTLIER_FILTER_SIZE], cut = 0;
    unsigned count = sort(filter, sorted);
    float chance = BY_CHANCE + (float)count / ONE_OF_MANY;
    for (unsigned place = 0; place < count && !own.explained; place++) {
        if (count < OUTLIER_FILTER_LEAST || sorted[place] > LIMITER_SLICE_MOST_NS)
            break;
        own.longest_ns = (uint64_t)sorted[place];
        cut += most_cut(sorted[place]);
        own.explained = (float)(count - 1 - place) <= cut + chance;
    }
    return own;
}
