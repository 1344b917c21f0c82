#include "cuda/time/completion.h"

#include "core/time/logbook.h"
#include "cuda/time/flight_events.h"
#include "runtime/clock.h"

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

void completion_end(struct process *process, struct flight *flight)
{
    flight_uncount(flight, counted(process, flight));
    logbook_cancel(logbook_of(process, flight), flight->logged);
    limiter_retire(meter_of(process, flight), flight->work_ns);
    flight_events_keep(&process->timing, flight);
    flight_let_go(flight, FLIGHT_NONE);
}

void completion_fail(struct process *process, struct flight *flight)
{
    struct unmeasured_stream stream = {
        .context = flight->context, .stream = flight->stream, .device = flight->device};
    flight_events_destroy(flight);
    completion_end(process, flight);
    if (unmeasured_fail(&process->timing.unmeasured, stream, clock_now()))
        process_degrade(process, VCUDA_DEGRADED_TIMING);
}

void completion_leave(struct process *process, struct flight *flight)
{
    flight->start = flight->end = flight->probe = NULL;
    completion_end(process, flight);
}
