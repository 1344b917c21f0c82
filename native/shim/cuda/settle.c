#include "cuda/settle.h"

static struct vcuda_meter *meter_of(struct process *process, const struct flight *flight)
{
    return &process->session.books.page->meters[flight->device];
}

static uint64_t smaller(uint64_t left, uint64_t right)
{
    return left < right ? left : right;
}

/* The part of the measurement, in millionths, that neither neighbours can have added nor other
 * streams. */
static uint32_t certain(struct settle_times times, struct limiter_terms terms)
{
    uint32_t ppm = cost_certain(terms.rate_ppm, terms.others_ppm);
    if (times.measured == 0)
        return 0;
    return times.own == times.measured ? ppm : (uint32_t)((double)ppm * times.own / times.measured);
}

/* What the measured launch cost; and its kind is known to from now on. */
static uint64_t learn(struct process *process, const struct flight *flight,
                      struct settle_times times, struct limiter_terms terms)
{
    const struct vcuda_meter *meter = meter_of(process, flight);
    struct cost_table *costs = &process->costs;
    uint32_t certain_ppm = certain(times, terms);
    if (flight->outdated)
        return cost_part(times.measured, certain_ppm);
    uint64_t cost = turn_alone(meter, process_turn(process), flight->begun_ns)
                        ? cost_record(costs, flight->key, times.now, times.measured, certain_ppm)
                        : cost_record_stretched(costs, flight->key, times.now, times.measured);
    return smaller(cost, times.own);
}

static void serve(struct process *process, const struct flight *flight, struct settle_times times)
{
    _Atomic uint64_t *ended = &process->in_flight[flight->device].ended_ns;
    *ended = limiter_end(*ended, flight->begun_ns, times.measured, times.now);
    limiter_serve(meter_of(process, flight), *ended);
}

void settle(struct process *process, struct flight *flight, struct settle_times times)
{
    struct vcuda_meter *meter = meter_of(process, flight);
    const struct vcuda_limit *limit = &process->session.config->limits[flight->device];
    struct limiter_terms terms = limiter_terms(limit, times.now);
    uint64_t cost = learn(process, flight, times, terms);
    int64_t debt = (int64_t)(limiter_price(terms.price, cost) - flight->paid_ns);
    limiter_settle(meter, terms, debt);
    limiter_retire(meter, (uint64_t)debt); /* below 0, too */
    serve(process, flight, times);
}
