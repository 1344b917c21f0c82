#include "core/limiter.h"

static uint64_t add(uint64_t left, uint64_t right)
{
    return left > UINT64_MAX - right ? UINT64_MAX : left + right;
}

static uint64_t subtract(uint64_t left, uint64_t right)
{
    return left > right ? left - right : 0;
}

/* Time on the virtual clock that `cost` takes at this rate. */
static uint64_t stretch(uint64_t cost, uint32_t rate_ppm)
{
    unsigned __int128 time = (unsigned __int128)cost * LIMITER_MILLION / rate_ppm;
    return time > INT64_MAX ? INT64_MAX : (uint64_t)time;
}

struct limiter_terms limiter_terms(const struct vcuda_limit *limit)
{
    uint32_t rate = atomic_load_explicit(&limit->rate_ppm, memory_order_relaxed);
    uint32_t percent = atomic_load_explicit(&limit->core_percent, memory_order_relaxed);
    uint32_t burst_us = atomic_load_explicit(&limit->burst_us, memory_order_relaxed);
    if (rate == 0) /* no elastic rate given: the promise itself */
        rate = percent * (LIMITER_MILLION / 100);
    uint64_t burst_ns = (uint64_t)(burst_us == 0 ? LIMITER_BURST_US : burst_us) * 1000;
    return (struct limiter_terms){
        .rate_ppm = rate == 0 ? 1 : rate,
        .burst_ns = burst_ns,
        .lead_ns = (int64_t)burst_ns,
    };
}

/* Where the clock stands after paying, having saved up no more than the burst. */
static uint64_t paid(uint64_t clock, struct limiter_terms terms, uint64_t now, uint64_t cost)
{
    uint64_t oldest = subtract(now, terms.burst_ns);
    return add(clock < oldest ? oldest : clock, stretch(cost, terms.rate_ppm));
}

/* The latest that the clock may show now for a launch to go. */
static uint64_t latest(struct limiter_terms terms, uint64_t now)
{
    return terms.lead_ns < 0 ? subtract(now, -(uint64_t)terms.lead_ns)
                             : add(now, (uint64_t)terms.lead_ns);
}

static void count(struct vcuda_meter *meter, uint64_t cost)
{
    atomic_fetch_add_explicit(&meter->charged_ns, cost, memory_order_relaxed);
    atomic_fetch_add_explicit(&meter->launches, 1, memory_order_relaxed);
}

/* Relaxed throughout: the word orders nothing but itself. */
uint64_t limiter_admit(struct vcuda_meter *meter, struct limiter_terms terms, uint64_t now,
                       uint64_t cost)
{
    uint64_t clock = atomic_load_explicit(&meter->virtual_time, memory_order_relaxed);
    uint64_t bound = latest(terms, now);
    do {
        if (clock > bound)
            return clock - bound;
    } while (!atomic_compare_exchange_weak_explicit(&meter->virtual_time, &clock,
                                                    paid(clock, terms, now, cost),
                                                    memory_order_relaxed, memory_order_relaxed));
    count(meter, cost);
    return 0;
}

void limiter_charge(struct vcuda_meter *meter, struct limiter_terms terms, uint64_t now,
                    uint64_t cost)
{
    uint64_t clock = atomic_load_explicit(&meter->virtual_time, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&meter->virtual_time, &clock,
                                                  paid(clock, terms, now, cost),
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    count(meter, cost);
}

static void move(VCUDA_ATOMIC(uint64_t) * word, int64_t change, uint64_t size)
{
    uint64_t old = atomic_load_explicit(word, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(word, &old,
                                                  change < 0 ? subtract(old, size) : add(old, size),
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

void limiter_settle(struct vcuda_meter *meter, struct limiter_terms terms, int64_t debt)
{
    uint64_t size = debt < 0 ? -(uint64_t)debt : (uint64_t)debt;
    move(&meter->virtual_time, debt, stretch(size, terms.rate_ppm));
    move(&meter->charged_ns, debt, size);
}
