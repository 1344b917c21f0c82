#include "cuda/time/timing.h"

#include "cuda/launch/capturing.h"
#include "cuda/pool/pool.h"
#include "cuda/time/completion.h"
#include "cuda/time/flight_events.h"
#include "cuda/time/settle.h"
#include "runtime/clock.h"

enum {
    POLL_INTERVAL_NS = 100 * 1000, /* a query costs about a microsecond */
    PATIENCE_S = 30,               /* a flight nobody could finish is left alone */
};

static unsigned long long number_of(CUcontext context)
{
    unsigned long long number;
    CUresult result = REAL(cuCtxGetId)(context, &number);
    return result == CUDA_SUCCESS ? number : (unsigned long long)(uintptr_t)context;
}

unsigned long long timing_context(void)
{
    CUcontext context = NULL;
    CUresult result = REAL(cuCtxGetCurrent)(&context);
    return result == CUDA_SUCCESS && context != NULL ? number_of(context) : 0;
}

/* Tell the manager of what may be longer than a time slice. */
static struct logged log_long(struct process *process, struct timing_subject subject, uint64_t now)
{
    struct session *session = &process->session;
    uint64_t cost;
    if (subject.key == 0 ||
        (cost_estimate(&process->costs, subject.key, &cost) && cost < LIMITER_SLICE_NS))
        return (struct logged){0};
    return logbook_open(&session->books.page->logbooks[subject.device],
                        (uint32_t)session->books.slot, now, subject.paid_ns);
}

static void enter(struct flight *flight, struct timing_subject subject, uint64_t now)
{
    flight->start = flight->end = flight->probe = NULL;
    flight->context = subject.context;
    flight->stream = pool_stream_key(subject.stream);
    flight->paid_ns = subject.paid_ns;
    flight->begun_ns = now;
    atomic_store_explicit(&flight->guesses, 0, memory_order_relaxed);
    atomic_store_explicit(&flight->guessed_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&flight->device, subject.device, memory_order_relaxed);
    atomic_store_explicit(&flight->key, subject.key, memory_order_relaxed);
    atomic_store_explicit(&flight->work_ns, subject.work_ns, memory_order_relaxed);
    atomic_store_explicit(&flight->polled_ns, now, memory_order_relaxed);
    atomic_store_explicit(&flight->given_up, false, memory_order_relaxed);
    atomic_store_explicit(&flight->outdated, false, memory_order_relaxed);
}

/* With the flight held and the capture mode relaxed. */
static bool begin_held(struct process *process, struct flight *flight, CUstream stream)
{
    if (flight->context == 0 || capture_has(stream)) {
        completion_end(process, flight);
        return false;
    }
    if (flight_events_begin(&process->timing, flight, stream) == CUDA_SUCCESS)
        return true;
    completion_fail(process, flight);
    return false;
}

/* Streams that wait for the host may hold up many flights: those are not to keep others from being
 * watched, for what is not watched goes for too little. */
static struct flight *take(struct process *process, unsigned long long context, bool measured)
{
    struct flights *flights = &process->timing.flights;
    struct flight *flight = flights_take(flights, measured);
    struct flight *old = flight == NULL ? flights_take_given_up(flights) : NULL;
    if (old == NULL)
        return flight;
    if (old->context == context) /* events may be destroyed before they are reached */
        completion_end(process, old);
    else
        completion_leave(process, old);
    return flights_take(flights, measured);
}

static void charge_owed(struct process *process, unsigned device, uint64_t owed, uint64_t now)
{
    struct session *session = &process->session;
    struct vcuda_meter *meter = &session->books.page->meters[device];
    limiter_settle(meter, limiter_terms(&session->config->limits[device], now), (int64_t)owed);
    limiter_retire(meter, owed);
}

/* A driver that does not tell is not believed to be busy for ever. */
static bool is_idle(CUstream stream)
{
    CUstreamCaptureMode mode = own_calls_begin();
    bool idle = REAL(cuStreamQuery)(stream) != CUDA_ERROR_NOT_READY;
    own_calls_end(mode);
    return idle;
}

void timing_see_elapsed(struct process *process, struct timing_subject subject, bool held,
                        uint64_t now)
{
    struct unmeasured *unmeasured = &process->timing.unmeasured;
    uint64_t stream = pool_stream_key(subject.stream);
    if (!unmeasured_has(unmeasured, subject.context, stream, now))
        return;
    struct unmeasured_look look = {.idle = is_idle(subject.stream), .held = held, .now = now};
    uint64_t owed = unmeasured_see(unmeasured, subject.context, stream, look);
    if (owed > 0)
        charge_owed(process, subject.device, owed, now);
}

bool timing_charge_elapsed(struct process *process, struct timing_subject subject, uint64_t now)
{
    struct unmeasured *unmeasured = &process->timing.unmeasured;
    uint64_t stream = pool_stream_key(subject.stream);
    if (!unmeasured_has(unmeasured, subject.context, stream, now))
        return false;
    unmeasured_launch(unmeasured, subject.context, stream, subject.paid_ns, now);
    limiter_retire(&process->session.books.page->meters[subject.device], subject.paid_ns);
    return true;
}

void timing_waited(struct process *process, unsigned device, uint64_t stream, uint64_t now)
{
    uint64_t owed = unmeasured_waited(&process->timing.unmeasured, device, stream, now);
    if (owed > 0)
        charge_owed(process, device, owed, now);
}

struct flight *timing_begin(struct process *process, struct timing_subject subject, uint64_t now)
{
    CUstreamCaptureMode mode = own_calls_begin();
    struct flight *flight = take(process, subject.context, subject.key != 0);
    if (flight == NULL) {
        in_flight_unmark(&process->in_flight[subject.device], subject.work_ns);
    } else {
        enter(flight, subject, now);
        flight->logged = log_long(process, subject, now);
        flight = begin_held(process, flight, subject.stream) ? flight : NULL;
    }
    own_calls_end(mode);
    return flight;
}

void timing_end(struct process *process, struct flight *flight, CUstream stream, CUresult launched)
{
    CUstreamCaptureMode mode = own_calls_begin();
    if (launched != CUDA_SUCCESS) { /* the program's error, not ours */
        in_flight_unmark(&process->in_flight[flight->device], flight->work_ns);
        flight->work_ns = 0;
        completion_end(process, flight);
    } else if (flight_events_end(&process->timing, flight, stream) == CUDA_SUCCESS) {
        flight_let_go(flight, FLIGHT_FLYING);
    } else {
        completion_fail(process, flight);
    }
    own_calls_end(mode);
}

/* False: not now. */
static bool settle(struct process *process, struct flight *flight, uint64_t now, uint64_t measured)
{
    struct gpu_time *time = &process->timing.times[flight->device];
    struct settle_times times = {now, measured, 0};
    void *old;
    if (!gpu_time_take(time, flight, measured, &times.own, &old))
        return false;
    if (old != NULL)
        flight_event_keep(&process->timing, flight->context, old);
    uint64_t cost = settle_learn(process, flight, times);
    settle_charge(process, flight, times, gpu_time_charge(time, cost));
    return true;
}

static void finish(struct process *process, struct flight *flight, uint64_t now)
{
    uint64_t measured;
    if (flight->key != 0) {
        if (flight_events_elapsed(&process->timing, flight, &measured) != CUDA_SUCCESS) {
            completion_fail(process, flight);
            return;
        }
        if (!settle(process, flight, now, measured)) {
            flight_let_go(flight, FLIGHT_FLYING);
            return;
        }
    }
    unmeasured_succeed(&process->timing.unmeasured, flight->context, flight->stream);
    completion_end(process, flight);
}

/* The launch, or work before it, is on the GPU yet. */
static void stay(struct process *process, struct flight *flight, uint64_t now)
{
    if (!flight->given_up)
        limiter_serve(&process->session.books.page->meters[flight->device], now);
    flight_let_go(flight, FLIGHT_FLYING);
}

static void poll_held(struct process *process, struct flight *flight, unsigned long long context,
                      uint64_t now)
{
    flight->polled_ns = now;
    CUresult result = CUDA_ERROR_NOT_READY;
    if (context == flight->context) /* or it may be gone, and its events with it */
        result = flight_events_query(flight);
    if (result == CUDA_SUCCESS)
        finish(process, flight, now);
    else if (result != CUDA_ERROR_NOT_READY)
        completion_fail(process, flight);
    else if (now - flight->begun_ns > UINT64_C(1000000000) * PATIENCE_S)
        completion_leave(process, flight);
    else if (context == flight->context)
        stay(process, flight, now);
    else
        flight_let_go(flight, FLIGHT_FLYING);
}

/* Somebody may wait for what it costs, or the manager for when it ended (logbook.h). */
static bool is_pressing(struct process *process, const struct flight *flight)
{
    uint64_t cost;
    return flight->key != 0 &&
           (!cost_estimate(&process->costs, flight->key, &cost) || cost >= LIMITER_SLICE_NS);
}

static bool due(struct process *process, const struct flight *flight,
                const struct timing_look *look)
{
    if (flight_phase(flight) != FLIGHT_FLYING || flight->device != look->device ||
        (flight->key == 0 && !look->marks))
        return false;
    uint64_t since = look->now - flight->polled_ns;
    return since >= look->every_ns || (since >= POLL_INTERVAL_NS && is_pressing(process, flight));
}

/* Those to look at, from the oldest on. */
static unsigned find_due(struct process *process, const struct timing_look *look,
                         struct flight *found[FLIGHTS])
{
    unsigned count = 0;
    for (int index = 0; index < FLIGHTS; index++) {
        struct flight *flight = &process->timing.flights.of[index];
        if (!due(process, flight, look))
            continue;
        unsigned place = count++;
        for (; place > 0 && found[place - 1]->begun_ns > flight->begun_ns; place--)
            found[place] = found[place - 1];
        found[place] = flight;
    }
    return count;
}

/* Is one of the first `count` still under way in the same stream? Then so is this one, which came
 * later. */
static bool is_behind(struct flight *const *found, unsigned count, const struct flight *flight)
{
    for (unsigned place = 0; place < count; place++)
        if (flight_phase(found[place]) == FLIGHT_FLYING && found[place]->stream == flight->stream &&
            found[place]->context == flight->context)
            return true;
    return false;
}

static void poll_each(struct process *process, const struct timing_look *look,
                      struct flight *const *found, unsigned count)
{
    for (unsigned place = 0; place < count; place++)
        if (!is_behind(found, place, found[place]) && flight_hold(found[place], FLIGHT_FLYING))
            poll_held(process, found[place], look->context, look->now);
}

void timing_poll(struct process *process, struct timing_look *look)
{
    struct flight *found[FLIGHTS];
    unsigned count = find_due(process, look, found);
    if (count == 0)
        return;
    CUstreamCaptureMode mode = own_calls_begin();
    look->context = look->context == 0 ? timing_context() : look->context;
    poll_each(process, look, found, count);
    own_calls_end(mode);
}

bool timing_explores(struct process *process, unsigned device)
{
    uint64_t cost;
    for (int index = 0; index < FLIGHTS; index++) {
        const struct flight *flight = &process->timing.flights.of[index];
        if (flight_phase(flight) != FLIGHT_NONE && flight->key != 0 && flight->device == device &&
            !flight->given_up && !cost_estimate(&process->costs, flight->key, &cost))
            return true;
    }
    return false;
}

typedef void visit_flight(struct process *, struct flight *, unsigned long long, uint64_t);

static void visit_all_of(struct process *process, unsigned long long context, visit_flight *visit)
{
    uint64_t now = clock_now();
    CUstreamCaptureMode mode = own_calls_begin();
    for (int index = 0; index < FLIGHTS; index++) {
        struct flight *flight = &process->timing.flights.of[index];
        if (flight->context == context && flight_hold(flight, FLIGHT_FLYING))
            visit(process, flight, context, now);
    }
    own_calls_end(mode);
}

/* The context went with it on the GPU. If nobody knows its cost, that is what it can have had. */
static void cut_short(struct process *process, struct flight *flight, unsigned long long context,
                      uint64_t now)
{
    uint64_t cost, since = process->in_flight[flight->device].ended_ns;
    (void)context;
    since = since > flight->begun_ns ? since : flight->begun_ns;
    flight->outdated = true; /* the next may have more time, or less */
    if (flight->key != 0 && !cost_estimate(&process->costs, flight->key, &cost) && since < now) {
        struct settle_times times = {now, now - since, now - since};
        settle_charge(process, flight, times, settle_learn(process, flight, times));
    }
    completion_leave(process, flight);
}

unsigned long long timing_context_ends(struct process *process, CUcontext context)
{
    if (context == NULL || !flights_any(&process->timing.flights))
        return 0;
    unsigned long long number = number_of(context);
    visit_all_of(process, number, poll_held);
    return number;
}

void timing_context_ended(struct process *process, unsigned long long number)
{
    if (number == 0)
        return;
    visit_all_of(process, number, cut_short);
    for (unsigned device = 0; device < VCUDA_DEVICES; device++)
        gpu_time_context_ended(&process->timing.times[device], number);
    event_pools_context_ended(&process->timing.events, number);
    unmeasured_context_ended(&process->timing.unmeasured, number);
}
