#include "cuda/landing.h"

#include "core/logbook.h"

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

static void drop_events(struct flight *flight)
{
    if (flight->start != NULL)
        REAL(cuEventDestroy_v2)(flight->start);
    if (flight->end != NULL)
        REAL(cuEventDestroy_v2)(flight->end);
    flight->start = flight->end = NULL;
}

void landing_end(struct process *process, struct flight *flight)
{
    flight_uncount(flight, counted(process, flight));
    logbook_cancel(logbook_of(process, flight), flight->logged);
    limiter_retire(meter_of(process, flight), flight->work_ns);
    drop_events(flight);
    flight_let_go(flight, FLIGHT_NONE);
}

void landing_fail(struct process *process, struct flight *flight)
{
    landing_end(process, flight);
    if (atomic_fetch_add(&process->timing.failures, 1) + 1 < FAILURES)
        return;
    atomic_store(&process->timing.off, true);
    process_degrade(process, VCUDA_DEGRADED_TIMING);
}

void landing_leave(struct process *process, struct flight *flight)
{
    flight->start = flight->end = NULL;
    landing_end(process, flight);
}
