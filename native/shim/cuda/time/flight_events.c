#include "cuda/time/flight_events.h"

enum {
    NS_PER_MS = 1000 * 1000,
    SHORT_NS = 5 * NS_PER_MS,
};

static enum event_kind kind_of(const struct flight *flight)
{
    return flight->key != 0 ? EVENT_TIMED : EVENT_UNTIMED;
}

static CUresult make(struct timing *timing, const struct flight *flight, void **event)
{
    enum event_kind kind = kind_of(flight);
    *event = event_pools_take(&timing->events, flight->context, kind);
    if (*event != NULL)
        return CUDA_SUCCESS;
    CUevent created = NULL;
    CUresult result = REAL(cuEventCreate)(&created, kind == EVENT_TIMED ? CU_EVENT_DEFAULT
                                                                        : CU_EVENT_DISABLE_TIMING);
    *event = created;
    return result;
}

static CUresult record(struct timing *timing, const struct flight *flight, void **event,
                       CUstream stream)
{
    CUresult result = *event == NULL ? make(timing, flight, event) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? REAL(cuEventRecord)(*event, stream) : result;
}

void flight_event_keep(struct timing *timing, unsigned long long context, void *event)
{
    if (!event_pools_give(&timing->events, context, EVENT_TIMED, event))
        REAL(cuEventDestroy_v2)(event);
}

static void keep(struct timing *timing, const struct flight *flight, void *event)
{
    if (event != NULL &&
        !event_pools_give(&timing->events, flight->context, kind_of(flight), event))
        REAL(cuEventDestroy_v2)(event);
}

static struct event_floor *floor_of(struct timing *timing, const struct flight *flight)
{
    return &timing->floors[atomic_load_explicit(&flight->device, memory_order_relaxed)];
}

/* Of a long launch a few microseconds are nothing. */
static bool is_short(const struct flight *flight)
{
    return flight->paid_ns < SHORT_NS;
}

static enum event_start start_of(const struct flight *flight)
{
    return flight->idle ? EVENT_START_IDLE : EVENT_START_BUSY;
}

static bool wants_probe(struct timing *timing, const struct flight *flight)
{
    return is_short(flight) && event_floor_wants(floor_of(timing, flight), start_of(flight));
}

/* Always with an empty pair if the stream is idle: behind that, the start is stamped like in a busy
 * stream where the GPU is another's just now. */
CUresult flight_events_begin(struct timing *timing, struct flight *flight, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    if (flight->key == 0)
        return CUDA_SUCCESS;
    flight->idle = is_short(flight) && REAL(cuStreamQuery)(stream) == CUDA_SUCCESS;
    if (flight->idle)
        result = record(timing, flight, &flight->probe, stream);
    return result == CUDA_SUCCESS ? record(timing, flight, &flight->start, stream) : result;
}

/* Is the start stamped by now, so that it may have been before the launch came? */
static bool is_early(const struct flight *flight)
{
    return flight->idle && REAL(cuEventQuery)(flight->start) == CUDA_SUCCESS;
}

CUresult flight_events_end(struct timing *timing, struct flight *flight, CUstream stream)
{
    CUresult result = record(timing, flight, &flight->end, stream);
    if (result != CUDA_SUCCESS || flight->key == 0)
        return result;
    flight->idle = is_early(flight);
    if (flight->idle)
        return CUDA_SUCCESS;
    if (wants_probe(timing, flight))
        return record(timing, flight, &flight->probe, stream); /* again, if it was before */
    keep(timing, flight, flight->probe);
    flight->probe = NULL;
    return CUDA_SUCCESS;
}

CUresult flight_events_query(const struct flight *flight)
{
    return REAL(cuEventQuery)(flight->end);
}

/* Between two events that have happened; nothing if they came the other way round. */
static CUresult between(void *first, void *last, uint64_t *ns)
{
    float milliseconds;
    CUresult result = REAL(cuEventElapsedTime)(&milliseconds, first, last);
    if (result == CUDA_SUCCESS)
        *ns = milliseconds > 0 ? (uint64_t)((double)milliseconds * NS_PER_MS + 0.5) : 0;
    return result;
}

/* The event behind the end may not have happened yet: beside neighbours, a time slice later. */
static void learn_floor(struct timing *timing, const struct flight *flight)
{
    uint64_t ns;
    CUresult result = flight->idle ? between(flight->probe, flight->start, &ns)
                                   : between(flight->end, flight->probe, &ns);
    if (result == CUDA_SUCCESS)
        event_floor_enter(floor_of(timing, flight), start_of(flight), ns);
}

CUresult flight_events_elapsed(struct timing *timing, const struct flight *flight, uint64_t *ns)
{
    CUresult result = between(flight->start, flight->end, ns);
    if (result != CUDA_SUCCESS)
        return result;
    if (flight->probe != NULL && wants_probe(timing, flight))
        learn_floor(timing, flight);
    *ns = event_floor_subtract(floor_of(timing, flight), start_of(flight), *ns);
    return CUDA_SUCCESS;
}

void flight_events_keep(struct timing *timing, struct flight *flight)
{
    keep(timing, flight, flight->start);
    keep(timing, flight, flight->end);
    keep(timing, flight, flight->probe);
    flight->start = flight->end = flight->probe = NULL;
}

static void destroy(void *event)
{
    if (event != NULL)
        REAL(cuEventDestroy_v2)(event);
}

void flight_events_destroy(struct flight *flight)
{
    destroy(flight->start);
    destroy(flight->end);
    destroy(flight->probe);
    flight->start = flight->end = flight->probe = NULL;
}
