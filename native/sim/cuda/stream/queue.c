#include "cuda/stream/queue.h"
#include "core/timeline.h"
#include "cuda/context/green.h"
#include "cuda/stream/memory.h"
#include <sys/prctl.h>
#include <time.h>

/* A launcher that met a full queue goes on when a part of it is free, but waits no longer for that
 * than this after the first place: so it is not woken for each. */
#define LONGEST_HOLD_NS UINT64_C(1000000)

/* How many pieces of work can wait. */
static uint64_t depth(const struct driver *driver)
{
    uint32_t wanted = driver->state->machine.driver.queue_depth;
    return wanted > 0 ? wanted : SIM_QUEUE_DEPTH;
}

void queue_sleep(uint64_t deadline)
{
    struct timespec until = {.tv_sec = (time_t)(deadline / 1000000000),
                             .tv_nsec = (long)(deadline % 1000000000)};
    int slack = prctl(PR_GET_TIMERSLACK);
    prctl(PR_SET_TIMERSLACK, 1UL); /* 50 us of slack would be five default kernels */
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    prctl(PR_SET_TIMERSLACK, slack > 0 ? (unsigned long)slack : 0UL);
}

static struct sim_queue *queue_of(const struct driver *driver, int device)
{
    return &driver->process->queues[driver->gpus[device]];
}

/* Lock the shared state and settle the device's past. */
static uint64_t lock_settled(struct driver *driver, int device)
{
    uint64_t now = sim_lock(driver->state);
    timeline_advance(driver->state, driver->gpus[device], now);
    return now;
}

CUresult queue_stream(struct driver *driver, CUstream handle, struct stream **stream, int *device)
{
    static const uintptr_t per_thread_default = 2; /* 0 and 1: the legacy default stream */
    if ((uintptr_t)handle > per_thread_default) {
        if (handle->kind != STREAM)
            return CUDA_ERROR_INVALID_HANDLE;
        *stream = handle;
        *device = handle->device;
        return CUDA_SUCCESS;
    }
    struct context *context = context_set(driver);
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context->green != NULL && (uintptr_t)handle == per_thread_default)
        return CUDA_ERROR_INVALID_HANDLE;
    *stream = context->green != NULL ? &context->green->standard : NULL;
    *device = context->device;
    return CUDA_SUCCESS;
}

CUresult queue_find(CUstream handle, struct driver **driver, struct stream **stream, int *device)
{
    CUresult result = driver_get(driver);
    return result == CUDA_SUCCESS ? queue_stream(*driver, handle, stream, device) : result;
}

/* The event whose place in the queue's memory is about to be taken learns its time now. */
static void keep_event(struct driver *driver, int device, uint64_t position)
{
    struct event **marker = &driver->markers[device][position % SIM_QUEUE_DEPTH];
    if (*marker != NULL && (*marker)->end_ns == 0)
        (*marker)->end_ns =
            timeline_end(driver->state, driver->process, driver->gpus[device], (*marker)->position);
    *marker = NULL;
}

unsigned queue_lane(struct driver *driver, bool blocking)
{
    unsigned first = blocking ? SIM_BLOCKING_LANES : SIM_OTHER_LANES;
    unsigned count = blocking ? SIM_OTHER_LANES - SIM_BLOCKING_LANES : SIM_LANES - SIM_OTHER_LANES;
    /* Relaxed: any two streams may share a lane. */
    return first + atomic_fetch_add_explicit(&driver->lanes, 1, memory_order_relaxed) % count;
}

/* The lanes of the legacy default stream and of those that wait for it. */
#define LEGACY_AND_BLOCKING ((UINT64_C(1) << SIM_OTHER_LANES) - 1)

/* Has all that was queued in the stream ended? */
static bool is_idle(const struct driver *driver, const struct stream *stream, int device)
{
    struct sim_reach reach = {queue_of(driver, device)->submitted, LEGACY_AND_BLOCKING};
    if (stream != NULL)
        reach = (struct sim_reach){stream->end, UINT64_C(1) << stream->lane};
    return timeline_reached(driver->state, driver->process, driver->gpus[device], reach);
}

static void remember(struct driver *driver, struct stream *stream, int device, struct event *event,
                     uint64_t position)
{
    if (stream != NULL)
        stream->end = position + 1;
    if (event == NULL)
        return;
    queue_forget_event(driver, event);
    event->device = device;
    event->position = position;
    event->lane = stream != NULL ? stream->lane : SIM_LEGACY_LANE;
    event->end_ns = 0;
    event->recorded = true;
    driver->markers[device][position % SIM_QUEUE_DEPTH] = event;
}

/* When the work at a position that has not ended will have, at the earliest. */
static uint64_t end_of(const struct driver *driver, int device, uint64_t position)
{
    unsigned gpu = driver->gpus[device];
    unsigned lane = timeline_lane(driver->state, driver->process, gpu, position);
    struct sim_reach reach = {position + 1, UINT64_C(1) << lane};
    return timeline_predict(driver->state, driver->process, gpu, reach);
}

/* When to try again with a queue that is full. */
static uint64_t room_again(const struct driver *driver, int device)
{
    uint64_t first = queue_of(driver, device)->completed;
    uint64_t one = end_of(driver, device, first);
    uint64_t many = end_of(driver, device, first + (depth(driver) - 1) / 16);
    uint64_t latest = one + LONGEST_HOLD_NS;
    many = many < latest ? many : latest;
    return one > many ? one : many;
}

/* One attempt. 0 and the position, or when to try again. */
static uint64_t try_submit(struct driver *driver, struct stream *stream, int device,
                           const struct sim_task *task, struct event *event, uint64_t *position)
{
    const struct sim_queue *queue = queue_of(driver, device);
    uint64_t again = 0;
    stream_memory_look(driver, device);
    pthread_mutex_lock(&driver->mutex);
    uint64_t now = lock_settled(driver, device);
    if (queue->submitted - queue->completed == depth(driver)) {
        again = room_again(driver, device);
    } else {
        keep_event(driver, device, queue->submitted);
        if (event != NULL)
            event->idle = is_idle(driver, stream, device);
        if (timeline_submit(driver->state, driver->process, driver->gpus[device], task, position) ==
            0)
            remember(driver, stream, device, event, *position);
        else
            again = now + LONGEST_HOLD_NS; /* the simulator's own room, for collectives */
    }
    sim_unlock(driver->state);
    pthread_mutex_unlock(&driver->mutex);
    return again;
}

/* On the SMs it may have. A kernel that wants more of them takes longer by as much. */
static struct sim_task confined(struct sim_task task, unsigned sms)
{
    if (sms == 0 || task.sms <= sms)
        return task;
    if (task.kind != SIM_MEMORY)
        task.duration_ns = (uint64_t)((unsigned __int128)task.duration_ns * task.sms / sms);
    task.sms = sms;
    return task;
}

struct sim_reach queue_submit(struct driver *driver, struct stream *stream, int device,
                              struct sim_task task, struct event *event)
{
    uint64_t again, position;
    task.lane = stream != NULL ? stream->lane : SIM_LEGACY_LANE;
    task = confined(task, stream != NULL ? stream->sms : 0);
    while ((again = try_submit(driver, stream, device, &task, event, &position)) != 0)
        queue_sleep(again);
    return (struct sim_reach){position + 1, UINT64_C(1) << task.lane};
}

struct sim_task queue_waiting_for(const struct event *event)
{
    return (struct sim_task){.kind = SIM_MARKER, .after = event->position + 1};
}

static unsigned lane_of(struct sim_reach reach)
{
    return (unsigned)__builtin_ctzll(reach.lanes);
}

void lane_waits_add(struct lane_waits *waits, struct sim_reach reach)
{
    uint64_t *before = &waits->before[lane_of(reach)];
    *before = reach.end > *before ? reach.end : *before;
}

void queue_submit_waits(struct driver *driver, struct stream *stream, int device,
                        const struct lane_waits *waits)
{
    for (unsigned lane = 0; lane < SIM_LANES; lane++)
        if (waits->before[lane] > 0)
            queue_submit(driver, stream, device,
                         (struct sim_task){.kind = SIM_MARKER, .after = waits->before[lane]}, NULL);
}

const uint64_t *queue_followed(const struct driver *driver, const struct stream *stream, int device)
{
    return stream != NULL ? stream->followed : driver->followed[device];
}

void queue_follow(struct driver *driver, struct stream *stream, int device, struct event *event)
{
    if (!queue_event_happened(driver, event))
        queue_submit(driver, stream, device, queue_waiting_for(event), NULL);
    pthread_mutex_lock(&driver->mutex);
    uint64_t *last = (uint64_t *)queue_followed(driver, stream, device) + event->lane;
    if (event->position >= *last)
        *last = event->position + 1;
    pthread_mutex_unlock(&driver->mutex);
}

bool queue_reached(struct driver *driver, int device, struct sim_reach reach)
{
    stream_memory_look(driver, device);
    lock_settled(driver, device);
    bool reached = timeline_reached(driver->state, driver->process, driver->gpus[device], reach);
    sim_unlock(driver->state);
    return reached;
}

/* 0, or when to look again. */
static uint64_t left_until(struct driver *driver, int device, struct sim_reach reach)
{
    unsigned gpu = driver->gpus[device];
    stream_memory_look(driver, device);
    lock_settled(driver, device);
    bool reached = timeline_reached(driver->state, driver->process, gpu, reach);
    uint64_t end = reached ? 0 : timeline_predict(driver->state, driver->process, gpu, reach);
    sim_unlock(driver->state);
    return end;
}

uint64_t queue_host_look(struct driver *driver, int device, struct sim_reach reach)
{
    unsigned gpu = driver->gpus[device];
    lock_settled(driver, device);
    bool begun =
        timeline_host_begun(driver->state, driver->process, gpu, lane_of(reach), reach.end - 1);
    uint64_t again = begun ? 0 : timeline_predict(driver->state, driver->process, gpu, reach);
    sim_unlock(driver->state);
    return again;
}

void queue_host_ended(struct driver *driver, int device, struct sim_reach reach)
{
    lock_settled(driver, device);
    timeline_host_ended(driver->state, driver->process, driver->gpus[device], lane_of(reach));
    sim_unlock(driver->state);
}

void queue_wait(struct driver *driver, int device, struct sim_reach reach)
{
    uint64_t again;
    while ((again = left_until(driver, device, reach)) != 0)
        queue_sleep(again);
}

static struct sim_reach submitted(struct driver *driver, int device, uint64_t lanes)
{
    sim_lock(driver->state);
    uint64_t end = queue_of(driver, device)->submitted;
    sim_unlock(driver->state);
    return (struct sim_reach){end, lanes};
}

struct sim_reach queue_reach(struct driver *driver, const struct stream *stream, int device)
{
    if (stream != NULL)
        return (struct sim_reach){stream->end, UINT64_C(1) << stream->lane};
    return submitted(driver, device, LEGACY_AND_BLOCKING);
}

struct sim_reach queue_all(struct driver *driver, int device)
{
    return submitted(driver, device, UINT64_MAX);
}

CUresult queue_finish(struct driver *driver, int device)
{
    queue_wait(driver, device, queue_all(driver, device));
    return CUDA_SUCCESS;
}

struct sim_reach queue_event_reach(const struct event *event)
{
    return (struct sim_reach){event->position + 1, UINT64_C(1) << event->lane};
}

bool queue_event_happened(struct driver *driver, struct event *event)
{
    unsigned gpu = driver->gpus[event->device];
    stream_memory_look(driver, event->device);
    pthread_mutex_lock(&driver->mutex);
    lock_settled(driver, event->device);
    if (event->end_ns == 0 &&
        timeline_reached(driver->state, driver->process, gpu, queue_event_reach(event)))
        event->end_ns = timeline_end(driver->state, driver->process, gpu, event->position);
    sim_unlock(driver->state);
    bool happened = event->end_ns != 0;
    pthread_mutex_unlock(&driver->mutex);
    return happened;
}

void queue_forget_event(struct driver *driver, struct event *event)
{
    struct event **marker = &driver->markers[event->device][event->position % SIM_QUEUE_DEPTH];
    if (*marker == event)
        *marker = NULL;
}
