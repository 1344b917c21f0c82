#include "cuda/time/settle.h"

#include "core/time/logbook.h"

static uint64_t larger(uint64_t left, uint64_t right)
{
    return left > right ? left : right;
}

static struct vcuda_meter *meter_of(struct process *process, const struct flight *flight)
{
    return &process->session.books.page->meters[flight->device];
}

static struct limiter_terms terms_of(struct process *process, const struct flight *flight,
                                     uint64_t now)
{
    return limiter_terms(&process->session.config->limits[flight->device], now);
}

/* What of the measurement neither neighbours can have added nor other streams. */
static struct cost_certain certain(struct settle_times times, struct limiter_terms terms)
{
    struct cost_certain certain = cost_certain(times.measured, terms);
    if (times.own == times.measured)
        return certain;
    double part = (double)times.own / (double)times.measured;
    certain.on_average_ns = (uint64_t)((double)certain.on_average_ns * part);
    certain.each_ns = (uint64_t)((double)certain.each_ns * part);
    certain.comparable = false;
    return certain;
}

/* Processes that may have work on the GPU besides: idle ones count, too. */
static uint32_t others(struct process *process, struct limiter_terms terms)
{
    const struct vcuda_slot *slots = process->session.books.page->slots;
    uint32_t count = terms.neighbours;
    for (int slot = 0; slot < VCUDA_SLOTS; slot++)
        count += slot != process->session.books.slot &&
                 atomic_load_explicit(&slots[slot].pid, memory_order_relaxed) != 0;
    return count;
}

uint64_t settle_learn(struct process *process, const struct flight *flight,
                      struct settle_times times)
{
    const struct vcuda_meter *meter = meter_of(process, flight);
    struct cost_table *costs = &process->costs;
    struct limiter_terms terms = terms_of(process, flight, times.now);
    struct cost_certain known = certain(times, terms);
    if (flight->outdated && terms.others_ppm >= LIMITER_MILLION)
        return times
            .own; /* nobody will see it again, nor does NVML show it to anybody: all of it */
    if (flight->outdated)
        return larger(known.on_average_ns, known.each_ns);
    if (arbitration_alone(meter, process_turn(process), flight->begun_ns))
        return cost_record(costs, flight->key, times.now, times.measured, known);
    return cost_record_stretched(costs, flight->key, times.now, times.measured,
                                 others(process, terms));
}

/* It was there until now, behind what was there before it. Returns since when. */
static uint64_t serve(struct process *process, const struct flight *flight,
                      struct settle_times times)
{
    _Atomic uint64_t *ended = &process->in_flight[flight->device].ended_ns;
    uint64_t begun = *ended > flight->begun_ns ? *ended : flight->begun_ns;
    *ended = limiter_end(*ended, flight->begun_ns, times.measured, times.now);
    limiter_serve(meter_of(process, flight), *ended);
    return begun;
}

static void log_end(struct process *process, const struct flight *flight, struct logbook_end end)
{
    struct session *session = &process->session;
    logbook_close(&session->books.page->logbooks[flight->device], flight->logged,
                  (uint32_t)session->books.slot, end);
}

/* What launches cost more than the guess that was paid for them, if each costs so much. */
static int64_t guess_debt(struct flight *flight, uint64_t charged)
{
    uint32_t guesses = atomic_exchange_explicit(&flight->guesses, 0, memory_order_relaxed);
    uint64_t paid = atomic_exchange_explicit(&flight->guessed_ns, 0, memory_order_relaxed);
    return (int64_t)(guesses * charged - paid);
}

void settle_charge(struct process *process, struct flight *flight, struct settle_times times,
                   uint64_t cost)
{
    struct vcuda_meter *meter = meter_of(process, flight);
    struct limiter_terms terms = terms_of(process, flight, times.now);
    uint64_t charged = limiter_cost(terms, cost);
    int64_t debt = (int64_t)(charged - flight->paid_ns) + guess_debt(flight, charged);
    limiter_settle(meter, terms, debt);
    limiter_retire(meter, (uint64_t)debt); /* below 0, too */
    uint64_t begun = serve(process, flight, times);
    uint64_t ended = process->in_flight[flight->device].ended_ns;
    log_end(process, flight, (struct logbook_end){begun, ended, cost, charged});
}
