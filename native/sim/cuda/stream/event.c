#include "cuda/capture/capture.h"
#include "cuda/ipc/ipc.h"
#include "cuda/pool/pool.h"
#include "cuda/stream/queue.h"
#include <stdlib.h>

enum { DISABLE_TIMING = 2 };

static bool is_event(const struct event *event)
{
    return event != NULL && event->kind == EVENT;
}

/* The driver and a valid event. */
static CUresult checked(CUevent event, struct driver **driver)
{
    CUresult result = driver_get(driver);
    if (result != CUDA_SUCCESS)
        return result;
    return is_event(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API CUresult cuEventCreate(CUevent *out, unsigned flags)
{
    struct driver *driver;
    struct context *context;
    CUresult result = driver_context(&driver, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct event *event = calloc(1, sizeof *event);
    if (event == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *event = (struct event){.kind = EVENT, .device = context->device, .flags = flags};
    result = ipc_event_begin(event);
    if (result != CUDA_SUCCESS) {
        free(event);
        return result;
    }
    *out = event;
    return CUDA_SUCCESS;
}

API CUresult cuEventDestroy_v2(CUevent event)
{
    struct driver *driver;
    CUresult result = checked(event, &driver);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver->mutex);
    queue_forget_event(driver, event);
    capture_forget(event);
    pthread_mutex_unlock(&driver->mutex);
    event->kind = NO_OBJECT;
    ipc_event_end(event);
    free(event);
    return CUDA_SUCCESS;
}
ALSO(cuEventDestroy_v2, cuEventDestroy);

API CUresult cuEventRecord(CUevent event, CUstream handle)
{
    struct driver *driver;
    struct stream *stream;
    int device;
    CUresult result = checked(event, &driver);
    if (result == CUDA_SUCCESS)
        result = queue_stream(driver, handle, &stream, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (device != event->device)
        return CUDA_ERROR_INVALID_HANDLE;
    if (capture_has(stream))
        return capture_record(driver, stream, event);
    capture_forget(event);
    queue_submit(driver, stream, device, (struct sim_task){.kind = SIM_MARKER}, event);
    ipc_event_recorded(driver, event);
    return CUDA_SUCCESS;
}
ALSO(cuEventRecord, cuEventRecord_ptsz);

API CUresult cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned flags)
{
    enum { EXTERNAL = 1 };
    struct driver *driver;
    struct stream *stream;
    int device;
    CUresult result = checked(event, &driver);
    if (result == CUDA_SUCCESS)
        result = queue_stream(driver, handle, &stream, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags == EXTERNAL && capture_has(stream))
        return capture_node(driver, stream, &(struct node){.type = NODE_RECORD, .event = event});
    return flags <= EXTERNAL ? cuEventRecord(event, handle) : CUDA_ERROR_INVALID_VALUE;
}
ALSO(cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz);

API CUresult cuEventQuery(CUevent event)
{
    struct driver *driver;
    CUresult result = checked(event, &driver);
    if (result == CUDA_SUCCESS && event->capture != 0)
        return (CUresult)ERROR_CAPTURED_EVENT;
    if (result == CUDA_SUCCESS)
        result = capture_unsafe(driver);
    if (result == CUDA_SUCCESS && event->page != NULL)
        return ipc_event_happened(driver, event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    if (result != CUDA_SUCCESS || !event->recorded)
        return result;
    return queue_event_happened(driver, event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API CUresult cuEventSynchronize(CUevent event)
{
    struct driver *driver;
    CUresult result = checked(event, &driver);
    if (result == CUDA_SUCCESS && event->capture != 0)
        result = (CUresult)ERROR_CAPTURED_EVENT;
    if (result != CUDA_SUCCESS)
        return result;
    if (event->page != NULL) {
        ipc_event_wait(driver, event);
    } else if (event->recorded) {
        queue_wait(driver, event->device, queue_event_reach(event));
        pool_synchronised(driver, event->device);
    }
    return CUDA_SUCCESS;
}

/* In nanoseconds, as two events of a real driver show it (struct sim_driver). Example: a kernel of
 * 10 us between two events shows 13 us with a floor of 3 us behind other work, and 19 us on a
 * stream that was idle, where the first is stamped before the host has pushed the kernel. */
static int64_t shown(const struct driver *driver, const struct event *start,
                     const struct event *end)
{
    const struct sim_driver *behaviour = &driver->state->machine.driver;
    const uint64_t step = behaviour->event_floor_ns + behaviour->event_idle_ns > 0 ? 500 : 1;
    uint64_t first = start->end_ns - (start->idle ? behaviour->event_idle_ns : 0);
    uint64_t last = end->end_ns + behaviour->event_floor_ns;
    return (int64_t)(last / step * step - first / step * step);
}

API CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    struct driver *driver;
    CUresult result = checked(start, &driver);
    if (result == CUDA_SUCCESS)
        result = checked(end, &driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (milliseconds == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (((start->flags | end->flags) & DISABLE_TIMING) != 0 || !start->recorded || !end->recorded ||
        start->device != end->device)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!queue_event_happened(driver, start) || !queue_event_happened(driver, end))
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((double)shown(driver, start, end) / 1e6);
    return CUDA_SUCCESS;
}
ALSO(cuEventElapsedTime, cuEventElapsedTime_v2);
