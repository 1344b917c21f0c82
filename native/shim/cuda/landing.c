#include "cuda/landing.h"

#include "core/logbook.h"
#include "cuda/flight_events.h"

enum { FAILURES = 3 }; /* in a row, and watching ends */

static struct in_flight *counted(struct process *process, const struct flight *flight)
{
    return &process->in_flight[atomic_load_explicit(&flight->device, memory_order_relaxed)];
}

static struct vcuda_meter *meter_of(struct process *process, const struct flight *flight)
{
    unsigned device = atomic_load_explicit(&flight->device, memory_order_relaxed);
    return &process->session.books.page->meters[device];
}

static struct vcuda_logbook *logbook_of(struct process *process, const struct flight *flight)
{
    unsigned device = atomic_load_explicit(&flight->device, memory_order_relaxed);
    return &process->session.books.page->logbooks[device];
}

void landing_end(struct process *process, struct flight *flight)
{
    flight_uncount(flight, counted(process, flight));
    logbook_cancel(logbook_of(process, flight), flight->logged);
    limiter_retire(meter_of(process, flight), flight->work_ns);
    flight_events_keep(&process->timing, flight);
    flight_let_go(flight, FLIGHT_NONE);
}

void landing_fail(struct process *process, struct flight *flight)
{
    flight_events_destroy(flight);
    landing_end(process, flight);
    if (atomic_fetch_add(&process->timing.failures, 1) + 1 < FAILURES)
        return;
    atomic_store(&process->timing.off, true);
    process_degrade(process, VCUDA_DEGRADED_TIMING);
}

void landing_leave(struct process *process, struct flight *flight)
{
    flight->start = flight->end = flight->probe = NULL;
    landing_end(process, flight);
}
