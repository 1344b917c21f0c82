/* What a launch costs in GPU nanoseconds, learnt from measured launches of the same kind.
 *
 * A kind is a function with a launch shape. A measurement is the time between two events around one
 * launch; while another process has the GPU's time slices it shows more than the launch took, so
 * the least of the last seconds is believed rather than the mean. But not less than the part of
 * the mean that neighbours cannot have added (cost_certain, and outlier_filter.h for what the
 * measurements of a kind say together): kernels whose length varies must not go for the price of
 * their shortest. With nobody else on the GPU that is the mean itself; a kind that varies is then
 * measured as often as it is paid for, or its mean would take seconds to learn.
 *
 * Programs with thousands of kinds cannot wait for the first measurement of each: once many are
 * known, an unknown one goes for what kinds were found to cost lately, until it is measured.
 *
 * A fixed table; memory that no kind has used is not touched. A kind without a place takes that of
 * the one measured longest ago. Looking up is lock-free, recording takes a short mutex; any thread.
 * All zero is a valid empty table. Times are ns given by the caller.
 */
#ifndef SHIM_CORE_TIME_COST_H
#define SHIM_CORE_TIME_COST_H

#include "core/time/limiter.h"
#include "core/time/outlier_filter.h"
#include "vcuda_region.h"

#ifndef VCUDA_CDEF
#include <pthread.h>
#include <stdbool.h>
#endif

enum {
    COST_KINDS = 8192,
    COST_UNKNOWN_NS = 50000,    /* charged until the first measurement corrects it */
    COST_INTERVAL_NS = 2000000, /* work of one kind between two measurements, on average */
    COST_STEADY_NS = 10000000,  /* the same of a kind whose length hardly varies */
    COST_SHAPE_BITS = 4,        /* of a grid's size: kinds differ by 6 to 12 per cent */
    COST_YOUNG = 8,             /* a kind that was measured less often may vary */
    COST_FAMILIAR_KINDS = 128,  /* so many known ones tell what to expect of the next */
};

/* Measurements of one window of time. */
struct cost_window {
    uint64_t least_ns;              /* 0: none */
    uint64_t believed_ns;           /* sum of what each is believed to have cost */
    uint64_t count;                 /* of those in the sum */
    uint64_t doubtful_ns, doubtful; /* the others: siblings may have added to them */
    uint64_t longest_ns;            /* of those */
};

struct cost_kind {
    VCUDA_ATOMIC(uint64_t) key; /* 0: empty */
    VCUDA_ATOMIC(uint64_t) estimate_ns;
    VCUDA_ATOMIC(uint64_t) unmeasured_ns; /* work since the last measurement, and a head start */
    uint64_t opened_ns;                   /* when the current window was opened */
    VCUDA_ATOMIC(uint32_t) measured;      /* how often, ever; counted up to COST_YOUNG */
    struct cost_window current, previous;
    struct outlier_filter filter;
};

struct cost_table {
    VCUDA_ATOMIC(uint32_t) known;      /* how many kinds were measured for the first time */
    VCUDA_ATOMIC(uint64_t) typical_ns; /* what they cost, the latest counting most */
    struct cost_kind kinds[COST_KINDS];
#ifdef VCUDA_CDEF
    ...;
#else
    pthread_mutex_t mutex;
#endif
};

/* A launch's kind: never 0. Large grids of nearly the same size are of one kind. */
#ifdef VCUDA_CDEF /* knows no bodies */
uint64_t cost_key(uint64_t function, uint64_t blocks, uint64_t threads);
#else
/* A size with its lower bits dropped, as a short float would have it. */
static inline uint64_t cost_coarse(uint64_t size)
{
    int dropped = 64 - COST_SHAPE_BITS - __builtin_clzll(size | 1 << (COST_SHAPE_BITS - 1));
    return size >> dropped << dropped;
}

/* On every launch's way: three products that do not wait for each other, and one of their sum. */
static inline uint64_t cost_key(uint64_t function, uint64_t blocks, uint64_t threads)
{
    uint64_t key = function * UINT64_C(0xd6e8feb86659fd93) +
                   cost_coarse(blocks) * UINT64_C(0x9e3779b97f4a7c15) +
                   threads * UINT64_C(0xc2b2ae3d27d4eb4f);
    key = (key ^ (key >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    key ^= key >> 32;
    return key == 0 ? 1 : key;
}
#endif

/* What a launch of this kind costs. False if none was measured yet: then what cost_unknown() says.
 */
bool cost_estimate(struct cost_table *table, uint64_t key, uint64_t *cost_ns);

/* Are so many kinds known that the cost of another can be guessed? */
bool cost_familiar(const struct cost_table *table);

/* What a launch of a kind that is not known goes for: what kinds cost lately, or COST_UNKNOWN_NS.
 */
uint64_t cost_unknown(const struct cost_table *table);

#ifndef VCUDA_PLAIN /* cffi's glue does without */
/* The same of a kind that is where most are, without a call; 0: ask cost_estimate(). */
static inline uint64_t cost_at_home(const struct cost_table *table, uint64_t key)
{
    const struct cost_kind *kind = &table->kinds[key % COST_KINDS];
    /* Pairs with the release in claim(): whoever sees the key sees its estimate. */
    return atomic_load_explicit(&kind->key, memory_order_acquire) != key
               ? 0
               : atomic_load_explicit(&kind->estimate_ns, memory_order_relaxed);
}
#endif

/* Count work of this kind: should its next launch be measured? Each that is longer than a time
 * slice: when it was there tells what others had (logbook.h). */
bool cost_due(struct cost_table *table, uint64_t key, uint64_t work_ns);

/* Is each launch of this kind to be measured, and so long that it is no burden? It varies. */
bool cost_each(struct cost_table *table, uint64_t key);

/* Nobody will say soon what this kind costs, and launches have waited for that: let it be known as
 * COST_UNKNOWN_NS, unless it is known by now. */
void cost_presume(struct cost_table *table, uint64_t key, uint64_t now);

/* What of a measurement neighbours' time slices cannot have added, whatever the kind.
 *
 * on_average: where it is known what others had, all of it without them, and nothing if they had
 * half of the GPU: a short kernel that a slice's end cuts in two then shows many times its length.
 * Where nothing is known of others (others_ppm a million): half of it, or the guaranteed share if
 * that is more. each: of every single one; the same where nothing is known. Processes with work
 * have slices in turn, so of a long one every so manieth slice; and all of it with nobody else
 * there. comparable: neighbours' slices are all that was added, if anything was: it is known of
 * them, and no other stream of the process was there. */
struct cost_certain {
    uint64_t on_average_ns, each_ns;
    bool comparable;
};

struct cost_certain cost_certain(uint64_t measured_ns, struct limiter_terms terms);

/* Learn from a measurement. Returns what the measured launch is believed to have cost. */
uint64_t cost_record(struct cost_table *table, uint64_t key, uint64_t now, uint64_t measured_ns,
                     struct cost_certain certain);

/* The same, where other processes of the container may have had the GPU in turn meanwhile: it costs
 * the least, or what is left if each of `others` had every slice but its own. Where no mean is
 * known, half of the mean of such measurements without the longest stands for it: processes that
 * are not throttled take no turns. others: processes, of this container and of neighbours. */
uint64_t cost_record_stretched(struct cost_table *table, uint64_t key, uint64_t now,
                               uint64_t measured_ns, uint32_t others);

/* What this kind costs has changed: nothing is known of it until it is measured again. */
void cost_forget(struct cost_table *table, uint64_t key);

#endif
