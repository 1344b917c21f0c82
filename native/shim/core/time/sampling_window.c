#include "core/time/sampling_window.h"

static uint64_t get(const VCUDA_ATOMIC(uint64_t) * word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static void begin(struct sampling_window *census)
{
    atomic_store_explicit(&census->work_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&census->left, SAMPLING_LAUNCHES + 1, memory_order_relaxed);
}

bool sampling_window_streams(struct sampling_window *census, uint64_t stream, uint64_t now)
{
    uint64_t last = atomic_exchange_explicit(&census->stream, stream, memory_order_relaxed);
    uint64_t changed = get(&census->changed_ns);
    bool several = changed != 0 && now - changed < UINT64_C(1000000000) * SAMPLING_MEMORY_S;
    if (last == 0 || last == stream)
        return several;
    atomic_store_explicit(&census->changed_ns, now, memory_order_relaxed);
    if (!several)
        begin(census);
    return true;
}

enum sampling_place sampling_window_next(struct sampling_window *census)
{
    uint32_t left = atomic_load_explicit(&census->left, memory_order_relaxed);
    while (left > 0 &&
           !atomic_compare_exchange_weak_explicit(&census->left, &left, left - 1,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    if (left == 0)
        return SAMPLING_NONE;
    if (left == 1)
        return SAMPLING_AFTER;
    return left == SAMPLING_LAUNCHES + 1 ? SAMPLING_FIRST : SAMPLING_WITHIN;
}

void sampling_window_count(struct sampling_window *census, uint64_t work, uint64_t cost)
{
    uint64_t before = atomic_fetch_add_explicit(&census->work_ns, work, memory_order_relaxed);
    uint64_t enough = cost * SAMPLING_LAUNCHES * SAMPLING_SPACING;
    enough = enough > SAMPLING_WORK_NS ? enough : SAMPLING_WORK_NS;
    if (before + work >= enough << atomic_load_explicit(&census->failures, memory_order_relaxed))
        begin(census);
}

void sampling_window_failed(struct sampling_window *census)
{
    uint32_t failures = atomic_load_explicit(&census->failures, memory_order_relaxed);
    atomic_store_explicit(&census->left, 0, memory_order_relaxed);
    if (failures < SAMPLING_FAILURES)
        atomic_store_explicit(&census->failures, failures + 1, memory_order_relaxed);
}
