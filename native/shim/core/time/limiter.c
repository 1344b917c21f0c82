#include "core/time/limiter.h"

#include <stdbool.h>

static uint64_t add(uint64_t left, uint64_t right)
{
    return left > UINT64_MAX - right ? UINT64_MAX : left + right;
}

static uint64_t subtract(uint64_t left, uint64_t right)
{
    return left > right ? left - right : 0;
}

uint64_t limiter_stretch(uint64_t cost, uint32_t rate_ppm)
{
    unsigned __int128 time = (unsigned __int128)cost * LIMITER_MILLION / rate_ppm;
    return time > INT64_MAX ? INT64_MAX : (uint64_t)time;
}

static uint64_t smaller(uint64_t left, uint64_t right)
{
    return left < right ? left : right;
}

static uint64_t larger(uint64_t left, uint64_t right)
{
    return left > right ? left : right;
}

/* Does what the manager lent still hold? Without a term it holds for good. */
static bool lent(uint64_t share_until, uint64_t now)
{
    return share_until == 0 || now < share_until;
}

/* Nobody knows of the others but for a term. */
static uint32_t others(const struct vcuda_limit *limit, uint64_t share_until, uint64_t now)
{
    if (share_until == 0 || now >= share_until)
        return LIMITER_MILLION;
    uint32_t ppm = atomic_load_explicit(&limit->others_ppm, memory_order_relaxed);
    return ppm < LIMITER_MILLION ? ppm : LIMITER_MILLION;
}

static uint64_t price(uint64_t ppm, uint64_t share_until, uint64_t now)
{
    if (ppm == 0 || !lent(share_until, now))
        ppm = LIMITER_MILLION;
    return (ppm << LIMITER_PRICE_BITS) / LIMITER_MILLION;
}

uint64_t limiter_cost(struct limiter_terms terms, uint64_t ns)
{
    return limiter_price(ns >= LIMITER_SLICE_NS ? terms.long_price : terms.price, ns);
}

struct limiter_terms limiter_terms(const struct vcuda_limit *limit, uint64_t now)
{
    /* First, acquire: pairs with region_share_store(); what is read after it is as new as it. */
    uint64_t until = atomic_load_explicit(&limit->share_until, memory_order_acquire);
    uint32_t rate = atomic_load_explicit(&limit->rate_ppm, memory_order_relaxed);
    uint32_t percent = atomic_load_explicit(&limit->core_percent, memory_order_relaxed);
    uint32_t burst_us = atomic_load_explicit(&limit->burst_us, memory_order_relaxed);
    uint32_t guarantee = percent * (LIMITER_MILLION / 100);
    if (rate == 0 || !lent(until, now))
        rate = guarantee;
    uint64_t burst_ns = (uint64_t)(burst_us == 0 ? LIMITER_BURST_US : burst_us) * 1000;
    return (struct limiter_terms){
        .rate_ppm = rate == 0 ? 1 : rate,
        .burst_ns = burst_ns,
        .lead_ns = (int64_t)burst_ns,
        .lag_ns = rate > guarantee ? 0 : LIMITER_LAG_NS,
        .others_ppm = others(limit, until, now),
        .neighbours = atomic_load_explicit(&limit->neighbours, memory_order_relaxed),
        .price = price(atomic_load_explicit(&limit->cost_ppm, memory_order_relaxed), until, now),
        .long_price =
            price(atomic_load_explicit(&limit->long_ppm, memory_order_relaxed), until, now),
    };
}

uint64_t limiter_lag(uint64_t served_until, uint64_t clock, struct limiter_terms terms)
{
    uint64_t lag = subtract(served_until, clock);
    return larger(smaller(lag, terms.lag_ns), terms.burst_ns);
}

/* Where the clock stands after paying, lagging behind by no more than it may. */
static uint64_t paid(const struct vcuda_meter *meter, uint64_t clock, struct limiter_terms terms,
                     uint64_t now, uint64_t cost)
{
    uint64_t served = atomic_load_explicit(&meter->served_until, memory_order_relaxed);
    uint64_t oldest = subtract(now, limiter_lag(served, clock, terms));
    return add(larger(clock, oldest), limiter_stretch(cost, terms.rate_ppm));
}

/* The latest that the clock may show now for a launch to go. */
static uint64_t latest(struct limiter_terms terms, uint64_t now)
{
    return terms.lead_ns < 0 ? subtract(now, -(uint64_t)terms.lead_ns)
                             : add(now, (uint64_t)terms.lead_ns);
}

/* As a clock at a rate of one. */
static void queue(struct vcuda_meter *meter, uint64_t now, uint64_t cost)
{
    uint64_t old = atomic_load_explicit(&meter->drained_at, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&meter->drained_at, &old,
                                                  add(larger(old, now), cost), memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
}

/* Relaxed throughout: each word orders nothing but itself. */
static void count(struct vcuda_meter *meter, uint64_t now, uint64_t cost)
{
    atomic_fetch_add_explicit(&meter->charged_ns, cost, memory_order_relaxed);
    queue(meter, now, cost);
    limiter_serve(meter, now); /* after the clock has been paid, which asks for it */
}

uint64_t limiter_admit(struct vcuda_meter *meter, struct limiter_terms terms, uint64_t now,
                       uint64_t cost)
{
    uint64_t clock = atomic_load_explicit(&meter->virtual_time, memory_order_relaxed);
    uint64_t bound = latest(terms, now);
    do {
        if (clock > bound)
            return clock - bound;
    } while (!atomic_compare_exchange_weak_explicit(&meter->virtual_time, &clock,
                                                    paid(meter, clock, terms, now, cost),
                                                    memory_order_relaxed, memory_order_relaxed));
    count(meter, now, cost);
    return 0;
}

void limiter_charge(struct vcuda_meter *meter, struct limiter_terms terms, uint64_t now,
                    uint64_t cost)
{
    uint64_t clock = atomic_load_explicit(&meter->virtual_time, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&meter->virtual_time, &clock,
                                                  paid(meter, clock, terms, now, cost),
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    count(meter, now, cost);
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
    move(&meter->virtual_time, debt, limiter_stretch(size, terms.rate_ppm));
    move(&meter->charged_ns, debt, size);
    if (debt > 0) /* never earlier: by now some of what was charged too much has passed as time */
        move(&meter->drained_at, debt, size);
}

void limiter_retire(struct vcuda_meter *meter, uint64_t charged)
{
    atomic_fetch_add_explicit(&meter->retired_ns, charged, memory_order_relaxed);
}

void limiter_serve(struct vcuda_meter *meter, uint64_t until)
{
    uint64_t known = atomic_load_explicit(&meter->served_until, memory_order_relaxed);
    while (known < until &&
           !atomic_compare_exchange_weak_explicit(&meter->served_until, &known, until,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

void limiter_wait(struct vcuda_meter *meter, uint64_t now)
{
    if (atomic_load_explicit(&meter->virtual_time, memory_order_relaxed) > now)
        limiter_serve(meter, now);
}

uint64_t limiter_end(uint64_t previous, uint64_t begun, uint64_t elapsed, uint64_t now)
{
    return smaller(add(larger(previous, begun), elapsed), now);
}

uint64_t limiter_allowance(struct limiter_terms terms, uint64_t last, uint64_t age)
{
    uint64_t most = smaller(LIMITER_ALLOWANCE_NS, terms.burst_ns / LIMITER_ALLOWANCES_PER_BURST);
    bool used_up =
        age / 8 <= limiter_stretch(last, terms.rate_ppm); /* an eighth of what it might */
    uint64_t size = used_up ? add(last, last) : last / 2;
    return larger(smaller(size, most), most / LIMITER_ALLOWANCES_PER_BURST);
}
