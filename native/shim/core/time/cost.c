#include "core/time/cost.h"

#include "core/time/limiter.h"

enum {
    PROBES = 16,
    WINDOW_MS = 5000,                        /* two of them are remembered */
    MEASURE_NOW_NS = COST_STEADY_NS * 3 / 2, /* of work unmeasured */
    LONG_NS = 100000,                        /* a measurement takes a few microseconds */
    EXPECTED = 16, /* of the kinds measured first lately, one counts so much */
};

/* Index of the kind among its probes, or of the first empty place, or -1. */
static int find(const struct cost_table *table, uint64_t key)
{
    for (unsigned probe = 0; probe < PROBES; probe++) {
        unsigned place = (unsigned)(key + probe) % COST_KINDS;
        /* Pairs with the release in claim(): whoever sees the key sees its estimate. */
        uint64_t found = atomic_load_explicit(&table->kinds[place].key, memory_order_acquire);
        if (found == key || found == 0)
            return (int)place;
    }
    return -1;
}

/* A kind that was measured, or NULL. */
static struct cost_kind *known(struct cost_table *table, uint64_t key)
{
    int place = find(table, key);
    if (place < 0)
        return NULL;
    struct cost_kind *kind = &table->kinds[place];
    return atomic_load_explicit(&kind->key, memory_order_relaxed) == key ? kind : NULL;
}

bool cost_estimate(struct cost_table *table, uint64_t key, uint64_t *cost_ns)
{
    const struct cost_kind *kind = known(table, key);
    uint64_t estimate =
        kind == NULL ? 0 : atomic_load_explicit(&kind->estimate_ns, memory_order_relaxed);
    *cost_ns = estimate == 0 ? cost_unknown(table) : estimate;
    return estimate != 0;
}

bool cost_familiar(const struct cost_table *table)
{
    return atomic_load_explicit(&table->known, memory_order_relaxed) >= COST_FAMILIAR_KINDS;
}

uint64_t cost_unknown(const struct cost_table *table)
{
    return cost_familiar(table) ? atomic_load_explicit(&table->typical_ns, memory_order_relaxed)
                                : COST_UNKNOWN_NS;
}

/* Due by its work: the next one is after as much again, for this one may be long under way. */
bool cost_due(struct cost_table *table, uint64_t key, uint64_t work_ns)
{
    struct cost_kind *kind = known(table, key);
    if (kind == NULL)
        return true;
    uint64_t before =
        atomic_fetch_add_explicit(&kind->unmeasured_ns, work_ns, memory_order_relaxed);
    if (before >= MEASURE_NOW_NS ||
        atomic_load_explicit(&kind->estimate_ns, memory_order_relaxed) >= LIMITER_SLICE_NS)
        return true;
    if (before + work_ns < MEASURE_NOW_NS)
        return false;
    atomic_fetch_sub_explicit(&kind->unmeasured_ns, COST_STEADY_NS, memory_order_relaxed);
    return true;
}

bool cost_each(struct cost_table *table, uint64_t key)
{
    struct cost_kind *kind = known(table, key);
    return kind != NULL &&
           atomic_load_explicit(&kind->unmeasured_ns, memory_order_relaxed) >= MEASURE_NOW_NS &&
           (atomic_load_explicit(&kind->measured, memory_order_relaxed) < COST_YOUNG ||
            atomic_load_explicit(&kind->estimate_ns, memory_order_relaxed) >= LONG_NS);
}

/* All probes taken: the kind measured longest ago makes room. */
static unsigned oldest(const struct cost_table *table, uint64_t key)
{
    unsigned choice = (unsigned)key % COST_KINDS;
    for (unsigned probe = 1; probe < PROBES; probe++) {
        unsigned place = (unsigned)(key + probe) % COST_KINDS;
        if (table->kinds[place].opened_ns < table->kinds[choice].opened_ns)
            choice = place;
    }
    return choice;
}

static struct cost_kind *claim(struct cost_table *table, uint64_t key, uint64_t now,
                               uint64_t measured_ns)
{
    int place = find(table, key);
    struct cost_kind *kind = &table->kinds[place < 0 ? oldest(table, key) : (unsigned)place];
    if (atomic_load_explicit(&kind->key, memory_order_relaxed) == key)
        return kind;
    kind->current = kind->previous = (struct cost_window){0};
    kind->filter = (struct outlier_filter){0};
    kind->opened_ns = now;
    atomic_store_explicit(&kind->measured, 0, memory_order_relaxed);
    atomic_store_explicit(&kind->estimate_ns, measured_ns, memory_order_relaxed);
    atomic_store_explicit(&kind->key, key, memory_order_release); /* pairs with find() */
    return kind;
}

static void turn_window(struct cost_kind *kind, uint64_t now)
{
    uint64_t window = (uint64_t)WINDOW_MS * 1000000, age = now - kind->opened_ns;
    if (age < window)
        return;
    kind->previous = age >= 2 * window ? (struct cost_window){0} : kind->current;
    kind->current = (struct cost_window){0};
    kind->opened_ns = now;
}

static uint64_t larger(uint64_t left, uint64_t right)
{
    return left > right ? left : right;
}

/* In millionths. */
static uint32_t part_without(struct limiter_terms terms)
{
    if (terms.others_ppm < LIMITER_MILLION)
        return 2 * (uint64_t)terms.others_ppm < LIMITER_MILLION
                   ? LIMITER_MILLION - 2 * terms.others_ppm
                   : 0;
    uint64_t part = larger(terms.rate_ppm, LIMITER_MILLION / 2);
    return part < LIMITER_MILLION ? (uint32_t)part : LIMITER_MILLION;
}

static uint64_t part_of(uint64_t measured_ns, uint32_t ppm)
{
    return ppm >= LIMITER_MILLION ? measured_ns
                                  : (uint64_t)((double)measured_ns * ppm / LIMITER_MILLION);
}

/* Each of the others may have had a slice before its first; but not where they took nothing. */
static uint64_t in_turn(uint64_t measured_ns, struct limiter_terms terms)
{
    if (terms.others_ppm == 0)
        return measured_ns;
    uint64_t first = (uint64_t)terms.neighbours * LIMITER_SLICE_MOST_NS;
    return measured_ns > first ? (measured_ns - first) / (terms.neighbours + 1) : 0;
}

struct cost_certain cost_certain(uint64_t measured_ns, struct limiter_terms terms)
{
    uint64_t part = part_of(measured_ns, part_without(terms));
    bool known = terms.others_ppm < LIMITER_MILLION;
    return (struct cost_certain){
        .on_average_ns = part,
        .each_ns = known ? in_turn(measured_ns, terms) : part,
        .comparable = known,
    };
}

static uint64_t lesser(uint64_t least, uint64_t measured_ns)
{
    return least == 0 || measured_ns < least ? measured_ns : least;
}

/* Without the longest: one that a slice has cut in two shows many times its length. */
static uint64_t doubtful_mean(const struct cost_window *now, const struct cost_window *then)
{
    uint64_t sum = now->doubtful_ns + then->doubtful_ns, count = now->doubtful + then->doubtful;
    return count < 2 ? 0 : (sum - larger(now->longest_ns, then->longest_ns)) / (count - 1);
}

static uint64_t mean(const struct cost_kind *kind)
{
    const struct cost_window *now = &kind->current, *then = &kind->previous;
    uint64_t count = now->count + then->count;
    return count == 0 ? doubtful_mean(now, then) / 2
                      : (now->believed_ns + then->believed_ns) / count;
}

/* Whether it varies is not known. */
static bool young(const struct cost_kind *kind)
{
    const struct cost_window *now = &kind->current, *then = &kind->previous;
    return now->count + now->doubtful + then->count + then->doubtful < COST_YOUNG;
}

/* For the next measurement to come after so much work, on average. By chance, up to a half more or
 * less: lengths that recur in a pattern must not dodge the measurements. */
static uint64_t head_start(uint64_t now, uint64_t interval)
{
    uint64_t chance = (now * UINT64_C(0x9e3779b97f4a7c15) >> 32) * interval >> 32;
    return MEASURE_NOW_NS - interval / 2 - chance;
}

/* Work between two measurements of a kind, on average; 0: measure each that is paid for. */
static uint64_t interval_of(const struct cost_kind *kind, uint64_t least, uint64_t average)
{
    if (young(kind) || average >= least + least / 2)
        return 0;
    return average >= least + least / 8 ? COST_INTERVAL_NS : COST_STEADY_NS;
}

/* A kind was measured for the first time. One that takes much longer than others tells little of
 * the next: it counts as four times what is typical. */
static void expect(struct cost_table *table, uint64_t cost)
{
    uint64_t typical = atomic_load_explicit(&table->typical_ns, memory_order_relaxed);
    uint64_t most = 4 * larger(1, typical);
    if (typical == 0)
        typical = cost;
    else
        typical = typical - typical / EXPECTED + (cost < most ? cost : most) / EXPECTED;
    atomic_store_explicit(&table->typical_ns, larger(1, typical), memory_order_relaxed);
    atomic_fetch_add_explicit(&table->known, 1, memory_order_relaxed);
}

/* The kind, with a window to enter a measurement. */
static struct cost_kind *opened(struct cost_table *table, uint64_t key, uint64_t now,
                                uint64_t measured_ns)
{
    uint64_t cost;
    if (!cost_estimate(table, key, &cost))
        expect(table, measured_ns);
    struct cost_kind *kind = claim(table, key, now, measured_ns);
    turn_window(kind, now);
    if (kind->measured < COST_YOUNG)
        atomic_fetch_add_explicit(&kind->measured, 1, memory_order_relaxed);
    return kind;
}

/* What follows from the measurements of the windows, this one among them. Returns the least. */
static uint64_t conclude(struct cost_kind *kind, uint64_t now, uint64_t measured_ns)
{
    uint64_t known = larger(1, measured_ns); /* 0 would be unknown */
    kind->current.least_ns = lesser(kind->current.least_ns, known);
    uint64_t least = lesser(kind->previous.least_ns, kind->current.least_ns);
    uint64_t average = mean(kind);
    uint64_t interval = interval_of(kind, least, average);
    atomic_store_explicit(&kind->unmeasured_ns,
                          interval == 0 ? MEASURE_NOW_NS : head_start(now, interval),
                          memory_order_relaxed);
    atomic_store_explicit(&kind->estimate_ns, larger(least, average), memory_order_relaxed);
    return least;
}

void cost_presume(struct cost_table *table, uint64_t key, uint64_t now)
{
    pthread_mutex_lock(&table->mutex);
    struct cost_kind *kind = claim(table, key, now, COST_UNKNOWN_NS);
    if (atomic_load_explicit(&kind->estimate_ns, memory_order_relaxed) == 0)
        atomic_store_explicit(&kind->estimate_ns, COST_UNKNOWN_NS, memory_order_relaxed);
    pthread_mutex_unlock(&table->mutex);
}

/* What a launch is believed to have cost, by what is certain of it and what others of its kind
 * show. */
static uint64_t believed(struct cost_kind *kind, uint64_t measured_ns, struct cost_certain certain)
{
    struct outlier_filter_own own = {0};
    if (certain.comparable) {
        outlier_filter_enter(&kind->filter, measured_ns);
        own = outlier_filter_own(&kind->filter);
    }
    uint64_t confirmed = measured_ns < own.longest_ns ? measured_ns : own.longest_ns;
    uint64_t least = larger(certain.each_ns, confirmed);
    return own.explained ? least : larger(least, certain.on_average_ns);
}

uint64_t cost_record(struct cost_table *table, uint64_t key, uint64_t now, uint64_t measured_ns,
                     struct cost_certain certain)
{
    pthread_mutex_lock(&table->mutex);
    struct cost_kind *kind = opened(table, key, now, measured_ns);
    uint64_t cost = believed(kind, measured_ns, certain);
    kind->current.believed_ns += cost;
    kind->current.count++;
    uint64_t least = conclude(kind, now, measured_ns);
    pthread_mutex_unlock(&table->mutex);
    return larger(least, cost);
}

/* What a launch is believed to have cost that others of the container may have stretched: like the
 * rest of its kind, but no less than what they cannot have added. Example: 30 us and 2 ms in turn.
 * The short ones often pass for alone, the long ones never do, and all would go for 30 us. */
static uint64_t believed_stretched(const struct cost_kind *kind, uint64_t measured_ns,
                                   uint64_t certain_ns)
{
    uint64_t average = mean(kind);
    return larger(certain_ns, measured_ns < average ? measured_ns : average);
}

uint64_t cost_record_stretched(struct cost_table *table, uint64_t key, uint64_t now,
                               uint64_t measured_ns, uint32_t others)
{
    struct limiter_terms terms = {.others_ppm = 1, .neighbours = others};
    uint64_t certain_ns = in_turn(measured_ns, terms);
    pthread_mutex_lock(&table->mutex);
    struct cost_kind *kind = opened(table, key, now, measured_ns);
    if (kind->current.count + kind->previous.count > 0) {
        kind->current.believed_ns += believed_stretched(kind, measured_ns, certain_ns);
        kind->current.count++;
    } else {
        kind->current.doubtful_ns += measured_ns;
        kind->current.longest_ns = larger(kind->current.longest_ns, measured_ns);
        kind->current.doubtful++;
    }
    uint64_t least = conclude(kind, now, measured_ns);
    pthread_mutex_unlock(&table->mutex);
    return larger(least, certain_ns);
}

/* Its place stays taken: what lies behind it is found by going over it. */
void cost_forget(struct cost_table *table, uint64_t key)
{
    pthread_mutex_lock(&table->mutex);
    struct cost_kind *kind = known(table, key);
    if (kind != NULL) {
        kind->current = kind->previous = (struct cost_window){0};
        kind->filter = (struct outlier_filter){0};
        atomic_store_explicit(&kind->measured, 0, memory_order_relaxed);
        atomic_store_explicit(&kind->unmeasured_ns, MEASURE_NOW_NS, memory_order_relaxed);
        atomic_store_explicit(&kind->estimate_ns, 0, memory_order_relaxed);
    }
    pthread_mutex_unlock(&table->mutex);
}
