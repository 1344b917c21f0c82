#include "core/time/sampling_window.h"

static uint64_t get(const VCUDA_ATOMIC(uint64_t) * word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static void begin(struct sampling_window *window)
{
    atomic_store_explicit(&window->work_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&window->left, SAMPLING_LAUNCHES + 1, memory_order_relaxed);
}

bool sampling_window_streams(struct sampling_window *window, uint64_t stream, uint64_t now)
{
    uint64_t last = atomic_exchange_explicit(&window->stream, stream, memory_order_relaxed);
    uint64_t changed = get(&window->changed_ns);
    bool several = changed != 0 && now - changed < UINT64_C(1000000000) * SAMPLING_MEMORY_S;
    if (last == 0 || last == stream)
        return several;
    atomic_store_explicit(&window->changed_ns, now, memory_order_relaxed);
    if (!several)
        begin(window);
    return true;
}

enum sampling_place sampling_window_next(struct sampling_window *window)
{
    uint32_t left = atomic_load_explicit(&window->left, memory_order_relaxed);
    while (left > 0 &&
           !atomic_compare_exchange_weak_explicit(&window->left, &left, left - 1,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    if (left == 0)
        return SAMPLING_NONE;
    if (left == 1)
        return SAMPLING_AFTER;
    return left == SAMPLING_LAUNCHES + 1 ? SAMPLING_FIRST : SAMPLING_WITHIN;
}

void sampling_window_count(struct sampling_window *window, uint64_t work, uint64_t cost)
{
    uint64_t before = atomic_fetch_add_explicit(&window->work_ns, work, memory_order_relaxed);
    uint64_t enough = cost * SAMPLING_LAUNCHES * SAMPLING_SPACING;
    enough = enough > SAMPLING_WORK_NS ? enough : SAMPLING_WORK_NS;
    if (before + work >= enough << atomic_load_explicit(&window->failures, memory_order_relaxed))
        begin(window);
}

void sampling_window_failed(struct sampling_window *window)
{
    uint32_t failures = atomic_load_explicit(&window->failures, memory_order_relaxed);
    atomic_store_explicit(&window->left, 0, memory_order_relaxed);
    if (failures < SAMPLING_FAILURES)
        atomic_store_explicit(&window->failures, failures + 1, memory_order_relaxed);
}
