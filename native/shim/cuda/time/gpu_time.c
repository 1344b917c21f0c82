#include "cuda/time/gpu_time.h"

#include "cuda_hooks.h"

enum {
    NS_PER_MS = 1000000,
    ANCHOR_NS = 100 * NS_PER_MS, /* the driver's answer has 24 bits */
};

static bool hold(struct gpu_time *time)
{
    /* Pairs with let_go(): the new owner sees what the last one wrote. */
    return !atomic_exchange_explicit(&time->held, true, memory_order_acquire);
}

static void let_go(struct gpu_time *time)
{
    atomic_store_explicit(&time->held, false, memory_order_release);
}

/* When did it end? False if the driver does not say. */
static bool end_of(const struct gpu_time *time, const struct flight *flight, int64_t *end)
{
    float milliseconds;
    if (REAL(cuEventElapsedTime)(&milliseconds, time->anchor, flight->end) != CUDA_SUCCESS)
        return false;
    double ns = (double)milliseconds * NS_PER_MS;
    *end = time->anchor_ns + (int64_t)(ns < 0 ? ns - 0.5 : ns + 0.5);
    return true;
}

/* The event of the flight is ours from now on. Returns the one that was. */
static void *keep(struct gpu_time *time, struct flight *flight, int64_t end)
{
    void *old = time->anchor;
    time->anchor = flight->end;
    time->anchor_ns = end;
    flight->end = NULL;
    return old;
}

/* The first of a context: there is nothing to reckon from, and nothing known to be covered. */
static void begin(struct gpu_time *time, struct flight *flight)
{
    time->cover.count = 0;
    time->ended_ns = 0;
    keep(time, flight, 0); /* the old one died with its context */
    atomic_store(&time->context, flight->context);
}

static uint64_t reckon(struct gpu_time *time, struct flight *flight, uint64_t measured, void **old)
{
    int64_t end = 0, since = -(int64_t)measured;
    unsigned long long context = atomic_load(&time->context);
    if (context == 0)
        begin(time, flight);
    else if (context != flight->context || !end_of(time, flight, &end))
        return measured;
    since += end;
    if (since >= time->ended_ns)
        time->spare_ns = 0; /* it had no company */
    if (end > time->ended_ns)
        time->ended_ns = end;
    if (end - time->anchor_ns > ANCHOR_NS)
        *old = keep(time, flight, end);
    return interval_union_add(&time->cover, since, end);
}

bool gpu_time_take(struct gpu_time *time, struct flight *flight, uint64_t measured, uint64_t *own,
                   void **old)
{
    *old = NULL;
    if (!hold(time))
        return false;
    *own = reckon(time, flight, measured, old);
    time->spare_ns += *own;
    return true;
}

uint64_t gpu_time_charge(struct gpu_time *time, uint64_t cost)
{
    uint64_t charge = cost < time->spare_ns ? cost : time->spare_ns;
    time->spare_ns -= charge;
    let_go(time);
    return charge;
}

void gpu_time_context_ended(struct gpu_time *time, unsigned long long context)
{
    atomic_compare_exchange_strong(&time->context, &context, 0);
}
