#include "cuda/settle.h"

#include "core/logbook.h"

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
static uint64_t certain(struct settle_times times, struct limiter_terms terms)
{
    uint64_t ns = cost_certain(times.measured, terms);
    return times.own == times.measured ? ns : (uint64_t)((double)ns * times.own / times.measured);
}

uint64_t settle_learn(struct process *process, const struct flight *flight,
                      struct settle_times times)
{
    const struct vcuda_meter *meter = meter_of(process, flight);
    struct cost_table *costs = &process->costs;
    struct limiter_terms terms = terms_of(process, flight, times.now);
    uint64_t certain_ns = certain(times, terms);
    if (flight->outdated && terms.others_ppm >= LIMITER_MILLION)
        return times
            .own; /* nobody will see it again, nor does NVML show it to anybody: all of it */
    if (flight->outdated)
        return certain_ns;
    return turn_alone(meter, process_turn(process), flight->begun_ns)
               ? cost_record(costs, flight->key, times.now, times.measured, certain_ns,
                             times.own == times.measured)
               : cost_record_stretched(costs, flight->key, times.now, times.measured);
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

void settle_charge(struct process *process, const struct flight *flight, struct settle_times times,
                   uint64_t cost)
{
    struct vcuda_meter *meter = meter_of(process, flight);
    struct limiter_terms terms = terms_of(process, flight, times.now);
    uint64_t charged = limiter_cost(terms, cost);
    int64_t debt = (int64_t)(charged - flight->paid_ns);
    limiter_settle(meter, terms, debt);
    limiter_retire(meter, (uint64_t)debt); /* below 0, too */
    uint64_t begun = serve(process, flight, times);
    uint64_t ended = process->in_flight[flight->device].ended_ns;
    log_end(process, flight, (struct logbook_end){begun, ended, cost, charged});
}
