#include "core/time/event_floor.h"

static uint32_t get(const VCUDA_ATOMIC(uint32_t) * word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

bool event_floor_wants(const struct event_floor *floor, enum event_start start)
{
    return get(&floor->count[start]) < EVENT_FLOOR_SAMPLES;
}

/* Relaxed: a sample that is counted and not written yet passes for one that is not there. */
void event_floor_enter(struct event_floor *floor, enum event_start start, uint64_t ns)
{
    if (ns > EVENT_FLOOR_MOST_NS || !event_floor_wants(floor, start))
        return;
    uint32_t place = atomic_fetch_add_explicit(&floor->count[start], 1, memory_order_relaxed);
    if (place < EVENT_FLOOR_SAMPLES)
        atomic_store_explicit(&floor->ns[start][place], (uint32_t)ns + 1, memory_order_relaxed);
}

static uint64_t of(const struct event_floor *floor, enum event_start start)
{
    uint32_t least = 0, count = 0;
    for (unsigned index = 0; index < EVENT_FLOOR_SAMPLES; index++) {
        uint32_t ns = get(&floor->ns[start][index]);
        count += ns > 0;
        least = least == 0 || (ns > 0 && ns < least) ? ns : least;
    }
    uint32_t doubt = count < EVENT_FLOOR_FEW ? EVENT_FLOOR_LEAST_NS : 0;
    return least > doubt + 1 ? least - 1 - doubt : 0;
}

uint64_t event_floor_subtract(const struct event_floor *floor, enum event_start start, uint64_t ns)
{
    uint64_t least = ns < EVENT_FLOOR_LEAST_NS ? ns : EVENT_FLOOR_LEAST_NS;
    uint64_t empty = of(floor, start);
    return ns > empty + least ? ns - empty : least;
}
