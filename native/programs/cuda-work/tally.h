/* What was launched, and how long it took: counts, and times in buckets of 3 %, so that a long run
 * takes no more memory than a short one. */
#ifndef PROGRAMS_CUDA_WORK_TALLY_H
#define PROGRAMS_CUDA_WORK_TALLY_H

#include <stdint.h>

enum { BUCKETS = 60 * 32 };

/* Of times in nanoseconds. */
struct spread {
    uint64_t count, most;
    uint64_t buckets[BUCKETS];
};

/* What a launch asks of the GPU. gpu_ns: of its kernels; fills and copies are counted in bytes. */
struct load {
    uint64_t kernels, bytes, gpu_ns;
};

/* launches: calls that gave the GPU work; kernels: those of graphs counted one by one.
 * gaps: from one launch's return to the next one's; of a phase's or burst's first, from its begin.
 * delays: from when a burst was due or a request arrived, or from a launch, to its end on the GPU.
 */
struct tally {
    uint64_t launches;
    struct load load;
    uint64_t begin, end;
    struct spread gaps, delays;
};

void spread_add(struct spread *spread, uint64_t ns);

/* The time that `percent` of all do not exceed, to 3 % above. There must be one. */
uint64_t spread_percentile(const struct spread *spread, double percent);

void load_add(struct load *load, struct load more);

/* Add the counts of another process or phase; both ends are kept. */
void tally_merge(struct tally *into, const struct tally *from);

#endif
