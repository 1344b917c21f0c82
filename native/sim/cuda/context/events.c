/* Events of whole contexts: of all their streams at once. Contexts of a process are one here, green
 * ones apart. */
#include "cuda/context/green.h"

/* A stream that stands for a lane. */
static struct stream in_lane(int device, unsigned lane)
{
    return (struct stream){.kind = STREAM, .device = device, .lane = lane};
}

static unsigned first_lane(uint64_t lanes)
{
    return (unsigned)__builtin_ctzll(lanes);
}

/* One lane comes after what is in all of them; the event is recorded there. */
static CUresult record(CUevent event, int device, uint64_t lanes)
{
    struct driver *driver;
    struct event last = {.kind = EVENT};
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (event == NULL || event->kind != EVENT || event->device != device)
        return CUDA_ERROR_INVALID_HANDLE;
    struct stream joining = in_lane(device, first_lane(lanes));
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        struct sim_reach reach = {queue_all(driver, device).end, UINT64_C(1) << lane};
        if ((lanes >> lane & 1) == 0 || queue_reached(driver, device, reach))
            continue;
        struct stream stream = in_lane(device, lane);
        last.position =
            queue_submit(driver, &stream, device, (struct sim_task){.kind = SIM_MARKER}, NULL).end -
            1;
        queue_submit(driver, &joining, device, queue_waiting_for(&last), NULL);
    }
    queue_submit(driver, &joining, device, (struct sim_task){.kind = SIM_MARKER}, event);
    return CUDA_SUCCESS;
}

static CUresult wait(CUevent event, int device, uint64_t lanes)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (event == NULL || event->kind != EVENT)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!event->recorded || event->device != device || queue_event_happened(driver, event))
        return CUDA_SUCCESS;
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        struct stream stream = in_lane(device, lane);
        if ((lanes >> lane & 1) != 0)
            queue_submit(driver, &stream, device, queue_waiting_for(event), NULL);
    }
    return CUDA_SUCCESS;
}

static uint64_t lanes_of(const struct context *context)
{
    return context->green != NULL ? context->green->lanes : UINT64_MAX;
}

API CUresult cuCtxRecordEvent(CUcontext context, CUevent event)
{
    return context != NULL && context->kind == CONTEXT
               ? record(event, context->device, lanes_of(context))
               : CUDA_ERROR_INVALID_CONTEXT;
}

API CUresult cuCtxWaitEvent(CUcontext context, CUevent event)
{
    return context != NULL && context->kind == CONTEXT
               ? wait(event, context->device, lanes_of(context))
               : CUDA_ERROR_INVALID_CONTEXT;
}

API CUresult cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event)
{
    return green != NULL && green->kind == GREEN ? cuCtxRecordEvent(&green->context, event)
                                                 : CUDA_ERROR_INVALID_CONTEXT;
}

API CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event)
{
    return green != NULL && green->kind == GREEN ? cuCtxWaitEvent(&green->context, event)
                                                 : CUDA_ERROR_INVALID_CONTEXT;
}
