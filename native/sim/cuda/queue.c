#include "cuda/queue.h"
#include "core/timeline.h"
#include <sys/prctl.h>
#include <time.h>

#define LONGEST_SLEEP_NS UINT64_C(2000000)

static void sleep_until(uint64_t deadline)
{
    uint64_t now = sim_now();
    if (deadline > now + LONGEST_SLEEP_NS)
        deadline = now + LONGEST_SLEEP_NS;
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
    struct context *context = context_current(driver);
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    *stream = NULL;
    *device = context->device;
    return CUDA_SUCCESS;
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

static void remember(struct driver *driver, struct stream *stream, int device, struct event *event,
                     uint64_t position)
{
    if (stream != NULL)
        stream->reach = position + 1;
    if (event == NULL)
        return;
    queue_forget_event(driver, event);
    event->device = device;
    event->position = position;
    event->end_ns = 0;
    event->recorded = true;
    driver->markers[device][position % SIM_QUEUE_DEPTH] = event;
}

/* One attempt. 0, or when to try again. */
static uint64_t try_submit(struct driver *driver, struct stream *stream, int device,
                           uint64_t duration_ns, struct event *event)
{
    unsigned gpu = driver->gpus[device];
    const struct sim_queue *queue = queue_of(driver, device);
    uint64_t position = 0, again = 0;
    pthread_mutex_lock(&driver->mutex);
    uint64_t now = lock_settled(driver, device);
    if (queue->submitted - queue->completed < SIM_QUEUE_DEPTH) {
        keep_event(driver, device, queue->submitted);
        timeline_submit(driver->state, driver->process, gpu, duration_ns, now, &position);
        remember(driver, stream, device, event, position);
    } else {
        again = timeline_predict(driver->state, driver->process, gpu, queue->completed);
    }
    sim_unlock(driver->state);
    pthread_mutex_unlock(&driver->mutex);
    return again;
}

void queue_submit(struct driver *driver, struct stream *stream, int device, uint64_t duration_ns,
                  struct event *event)
{
    uint64_t again;
    while ((again = try_submit(driver, stream, device, duration_ns, event)) != 0)
        sleep_until(again);
}

bool queue_reached(struct driver *driver, int device, uint64_t reach)
{
    lock_settled(driver, device);
    bool reached = queue_of(driver, device)->completed >= reach;
    sim_unlock(driver->state);
    return reached;
}

void queue_wait(struct driver *driver, int device, uint64_t reach)
{
    unsigned gpu = driver->gpus[device];
    for (;;) {
        lock_settled(driver, device);
        bool reached = queue_of(driver, device)->completed >= reach;
        uint64_t end =
            reached ? 0 : timeline_predict(driver->state, driver->process, gpu, reach - 1);
        sim_unlock(driver->state);
        if (reached)
            return;
        sleep_until(end);
    }
}

uint64_t queue_reach(struct driver *driver, const struct stream *stream, int device)
{
    if (stream != NULL)
        return stream->reach;
    sim_lock(driver->state);
    uint64_t reach = queue_of(driver, device)->submitted;
    sim_unlock(driver->state);
    return reach;
}

CUresult queue_finish(struct driver *driver, int device)
{
    queue_wait(driver, device, queue_reach(driver, NULL, device));
    return CUDA_SUCCESS;
}

bool queue_event_happened(struct driver *driver, struct event *event)
{
    pthread_mutex_lock(&driver->mutex);
    lock_settled(driver, event->device);
    if (event->end_ns == 0 && queue_of(driver, event->device)->completed > event->position)
        event->end_ns = timeline_end(driver->state, driver->process, driver->gpus[event->device],
                                     event->position);
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
