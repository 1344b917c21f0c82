#include "core/time/census.h"

static uint64_t get(const VCUDA_ATOMIC(uint64_t) * word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static void begin(struct census *census)
{
    atomic_store_explicit(&census->work_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&census->left, CENSUS_LAUNCHES + 1, memory_order_relaxed);
}

bool census_streams(struct census *census, uint64_t stream, uint64_t now)
{
    uint64_t last = atomic_exchange_explicit(&census->stream, stream, memory_order_relaxed);
    uint64_t changed = get(&census->changed_ns);
    bool several = changed != 0 && now - changed < UINT64_C(1000000000) * CENSUS_MEMORY_S;
    if (last == 0 || last == stream)
        return several;
    atomic_store_explicit(&census->changed_ns, now, memory_order_relaxed);
    if (!several)
        begin(census);
    return true;
}

enum census_place census_next(struct census *census)
{
    uint32_t left = atomic_load_explicit(&census->left, memory_order_relaxed);
    while (left > 0 &&
           !atomic_compare_exchange_weak_explicit(&census->left, &left, left - 1,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    if (left == 0)
        return CENSUS_NONE;
    if (left == 1)
        return CENSUS_AFTER;
    return left == CENSUS_LAUNCHES + 1 ? CENSUS_FIRST : CENSUS_WITHIN;
}

void census_count(struct census *census, uint64_t work, uint64_t cost)
{
    uint64_t before = atomic_fetch_add_explicit(&census->work_ns, work, memory_order_relaxed);
    uint64_t enough = cost * CENSUS_LAUNCHES * CENSUS_SPACING;
    enough = enough > CENSUS_WORK_NS ? enough : CENSUS_WORK_NS;
    if (before + work >= enough << atomic_load_explicit(&census->failures, memory_order_relaxed))
        begin(census);
}

void census_failed(struct census *census)
{
    uint32_t failures = atomic_load_explicit(&census->failures, memory_order_relaxed);
    atomic_store_explicit(&census->left, 0, memory_order_relaxed);
    if (failures < CENSUS_FAILURES)
        atomic_store_explicit(&census->failures, failures + 1, memory_order_relaxed);
}
