#include "cuda/stream/stream.h"
#include "cuda/capture/capture.h"
#include "cuda/context/green.h"
#include "cuda/ipc/ipc.h"
#include "cuda/pool/pool.h"
#include "cuda/stream/queue.h"
#include <stdlib.h>

enum {
    EXTERNAL = 1,     /* to a capture: the event becomes a node, no edge */
    NON_BLOCKING = 1, /* with the legacy default stream */
    LEAST = 0,        /* priority */
    GREATEST = -5,
};

int stream_priority(int wanted)
{
    return wanted > LEAST ? LEAST : wanted < GREATEST ? GREATEST : wanted;
}

CUresult stream_new(struct driver *driver, struct context *context, unsigned flags, int priority,
                    CUstream *out)
{
    struct stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *stream = (struct stream){.kind = STREAM,
                              .device = context->device,
                              .context = context,
                              .flags = flags,
                              .priority = stream_priority(priority),
                              .number = driver_number(driver),
                              .lane = queue_lane(driver, (flags & NON_BLOCKING) == 0)};
    if (context->green != NULL) {
        stream->sms = context->green->sms;
        context->green->lanes |= UINT64_C(1) << stream->lane;
    }
    *out = stream;
    return CUDA_SUCCESS;
}

API CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
    struct driver *driver;
    struct context *context;
    CUresult result = driver_context(&driver, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || flags > NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    return stream_new(driver, context_set(driver), flags, priority, out);
}

API CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
    return cuStreamCreateWithPriority(out, flags, 0);
}

/* Its work goes on, as the interface guarantees; the queue does not refer to it. */
API CUresult cuStreamDestroy_v2(CUstream handle)
{
    struct driver *driver;
    struct stream *stream;
    int device;
    CUresult result = queue_find(handle, &driver, &stream, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream != handle) /* a default stream */
        return CUDA_ERROR_INVALID_HANDLE;
    result = capture_asked(driver, stream, device);
    if (result != CUDA_SUCCESS)
        return result;
    stream->kind = NO_OBJECT;
    free(stream);
    return CUDA_SUCCESS;
}
ALSO(cuStreamDestroy_v2, cuStreamDestroy);

API CUresult cuStreamSynchronize(CUstream handle)
{
    struct driver *driver;
    struct stream *stream;
    int device;
    CUresult result = queue_find(handle, &driver, &stream, &device);
    if (result == CUDA_SUCCESS)
        result = capture_asked(driver, stream, device);
    if (result != CUDA_SUCCESS)
        return result;
    queue_wait(driver, device, queue_reach(driver, stream, device));
    pool_synchronised(driver, device);
    return CUDA_SUCCESS;
}

API CUresult cuStreamSynchronize_ptsz(CUstream handle)
{
    return cuStreamSynchronize(handle);
}

API CUresult cuStreamQuery(CUstream handle)
{
    struct driver *driver;
    struct stream *stream;
    int device;
    CUresult result = queue_find(handle, &driver, &stream, &device);
    if (result == CUDA_SUCCESS)
        result = capture_asked(driver, stream, device);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_reach reach = queue_reach(driver, stream, device);
    return queue_reached(driver, device, reach) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
ALSO(cuStreamQuery, cuStreamQuery_ptsz);

/* An event of another device is not waited for: between devices nothing waits. */
API CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags)
{
    struct driver *driver;
    struct stream *stream;
    int device;
    CUresult result = queue_find(handle, &driver, &stream, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (event == NULL || event->kind != EVENT)
        return CUDA_ERROR_INVALID_HANDLE;
    if (capture_has(stream) && flags == EXTERNAL)
        return capture_node(driver, stream, &(struct node){.type = NODE_WAIT, .event = event});
    if (capture_has(stream) || event->capture != 0)
        return capture_wait(driver, stream, event);
    if (event->page != NULL)
        ipc_event_wait(driver, event);
    else if (event->recorded && event->device == device)
        queue_follow(driver, stream, device, event);
    return CUDA_SUCCESS;
}
ALSO(cuStreamWaitEvent, cuStreamWaitEvent_ptsz);

/* A property of a stream, for a function that writes to `out`. */
static CUresult property(CUstream handle, const void *out, struct stream **stream)
{
    struct driver *driver;
    int device;
    CUresult result = queue_find(handle, &driver, stream, &device);
    if (result == CUDA_SUCCESS && out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return result;
}

API CUresult cuStreamGetFlags(CUstream handle, unsigned *out)
{
    struct stream *stream;
    CUresult result = property(handle, out, &stream);
    if (result == CUDA_SUCCESS)
        *out = stream != NULL ? stream->flags : 0;
    return result;
}
ALSO(cuStreamGetFlags, cuStreamGetFlags_ptsz);

API CUresult cuStreamGetPriority(CUstream handle, int *out)
{
    struct stream *stream;
    CUresult result = property(handle, out, &stream);
    if (result == CUDA_SUCCESS)
        *out = stream != NULL ? stream->priority : 0;
    return result;
}
ALSO(cuStreamGetPriority, cuStreamGetPriority_ptsz);

API CUresult cuStreamGetId(CUstream handle, unsigned long long *out)
{
    struct stream *stream;
    CUresult result = property(handle, out, &stream);
    if (result == CUDA_SUCCESS)
        *out = stream != NULL ? stream->number : (uintptr_t)handle;
    return result;
}
ALSO(cuStreamGetId, cuStreamGetId_ptsz);

CUresult stream_context(CUstream handle, const void *out, struct context **context)
{
    struct driver *driver;
    struct stream *stream;
    CUresult result = property(handle, out, &stream);
    if (result == CUDA_SUCCESS)
        result = driver_get(&driver);
    if (result == CUDA_SUCCESS)
        *context = stream != NULL ? stream->context : context_set(driver);
    return result;
}

/* The first interface cannot name two contexts. */
API CUresult cuStreamGetCtx(CUstream handle, CUcontext *out)
{
    struct stream *stream;
    struct context *context;
    CUresult result = property(handle, out, &stream);
    if (result == CUDA_SUCCESS && stream != NULL && stream->of_green_interface)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS)
        result = stream_context(handle, out, &context);
    if (result == CUDA_SUCCESS)
        *out = context;
    return result;
}
ALSO(cuStreamGetCtx, cuStreamGetCtx_ptsz);

API CUresult cuStreamGetDevice(CUstream handle, CUdevice *out)
{
    struct driver *driver;
    struct stream *stream;
    int device;
    CUresult result = queue_find(handle, &driver, &stream, &device);
    if (result == CUDA_SUCCESS && out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *out = device;
    return result;
}
ALSO(cuStreamGetDevice, cuStreamGetDevice_ptsz);
