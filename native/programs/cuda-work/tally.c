#include "tally.h"

enum { STEPS = 32, STEP_BITS = 5 }; /* buckets between powers of two */

static unsigned bucket_of(uint64_t ns)
{
    if (ns < STEPS)
        return (unsigned)ns;
    unsigned shift = 63U - (unsigned)__builtin_clzll(ns) - STEP_BITS;
    return STEPS * (shift + 1) + (unsigned)(ns >> shift) % STEPS;
}

static uint64_t last_in(unsigned bucket)
{
    if (bucket < STEPS)
        return bucket;
    unsigned shift = bucket / STEPS - 1;
    return ((uint64_t)(STEPS + bucket % STEPS) << shift) + ((UINT64_C(1) << shift) - 1);
}

void spread_add(struct spread *spread, uint64_t ns)
{
    spread->buckets[bucket_of(ns)]++;
    spread->count++;
    if (ns > spread->most)
        spread->most = ns;
}

uint64_t spread_percentile(const struct spread *spread, double percent)
{
    double wanted = (double)spread->count * percent / 100;
    uint64_t seen = 0;
    unsigned bucket = 0;
    for (; bucket < BUCKETS - 1; bucket++) {
        seen += spread->buckets[bucket];
        if (seen > 0 && (double)seen >= wanted)
            break;
    }
    uint64_t last = last_in(bucket);
    return last < spread->most ? last : spread->most;
}

static void spread_merge(struct spread *into, const struct spread *from)
{
    into->count += from->count;
    if (from->most > into->most)
        into->most = from->most;
    for (unsigned i = 0; i < BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
}

void load_add(struct load *load, struct load more)
{
    load->kernels += more.kernels;
    load->bytes += more.bytes;
    load->gpu_ns += more.gpu_ns;
}

void tally_merge(struct tally *into, const struct tally *from)
{
    into->launches += from->launches;
    load_add(&into->load, from->load);
    if (into->begin == 0 || (from->begin != 0 && from->begin < into->begin))
        into->begin = from->begin;
    if (from->end > into->end)
        into->end = from->end;
    spread_merge(&into->gaps, &from->gaps);
    spread_merge(&into->delays, &from->delays);
}
