/* Contexts made by hand, and what ends with any context: nothing of the driver below calls back
 * into this file. */
#include "cuda/context/context.h"
#include "core/ledger.h"
#include "core/timeline.h"
#include "cuda/array/array.h"
#include "cuda/capture/capture.h"
#include "cuda/memory/memory.h"
#include "cuda/module/module.h"
#include "cuda/pool/pool.h"
#include "cuda/stream/memory.h"
#include "cuda/stream/queue.h"
#include <stdlib.h>
#include <unistd.h>

static bool is_context(const struct context *context)
{
    return context != NULL && context->kind == CONTEXT;
}

CUresult context_open(struct driver *driver, struct context *context, CUdevice device,
                      unsigned flags)
{
    uint64_t now = sim_lock(driver->state);
    unsigned gpu = driver->gpus[device];
    int charged = ledger_open_context(driver->state, driver->process, gpu, now);
    timeline_prepare(driver->state, driver->process, gpu);
    sim_unlock(driver->state);
    if (charged != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *context = (struct context){.kind = CONTEXT,
                                .device = device,
                                .flags = flags,
                                .number = driver_number(driver),
                                .limits = {1024, 1048576, 8388608, 2, 2048, 128, 0, 0}};
    return CUDA_SUCCESS;
}

void context_close(struct driver *driver, struct context *context)
{
    stream_memory_abandon(driver, context->device);
    queue_finish(driver, context->device);
    pthread_mutex_lock(&driver->mutex);
    memory_free_all(driver, context);
    host_memory_free_all(driver, context);
    arrays_free_all(driver, context);
    module_leave_all(driver, context);
    context->kind = NO_OBJECT;
    pthread_mutex_unlock(&driver->mutex);
    sim_lock(driver->state);
    ledger_give(driver->process, driver->gpus[context->device],
                context->heap_bytes + context->stack_bytes);
    ledger_close_context(driver->state, driver->process, driver->gpus[context->device]);
    sim_unlock(driver->state);
}

API CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice device)
{
    struct driver *driver;
    const struct sim_gpu *gpu;
    CUresult result = driver_device(device, &driver, &gpu);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct context *context = calloc(1, sizeof *context);
    if (context == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = context_open(driver, context, device, flags);
    if (result == CUDA_SUCCESS)
        result = context_push(driver, context);
    if (result != CUDA_SUCCESS) {
        free(context);
        return result;
    }
    *out = context;
    return CUDA_SUCCESS;
}

API CUresult cuCtxCreate(CUcontext *out, unsigned flags, CUdevice device)
{
    return cuCtxCreate_v2(out, flags, device);
}

/* Shares of a GPU for one context belong to the multi-process service, which is not simulated. */
API CUresult cuCtxCreate_v3(CUcontext *out, void *affinity, int count, unsigned flags,
                            CUdevice device)
{
    (void)affinity;
    return count == 0 ? cuCtxCreate_v2(out, flags, device) : CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

API CUresult cuCtxCreate_v4(CUcontext *out, const CUctxCreateParams *parameters, unsigned flags,
                            CUdevice device)
{
    return parameters == NULL
               ? cuCtxCreate_v2(out, flags, device)
               : cuCtxCreate_v3(out, parameters->affinities, parameters->count, flags, device);
}

/* The object stays, marked, so that a late use of the handle is refused rather than fatal. */
API CUresult cuCtxDestroy_v2(CUcontext context)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_context(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context == &driver->primaries[context->device] || context->green != NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    context_leave(driver, context);
    context_close(driver, context);
    return CUDA_SUCCESS;
}

API CUresult cuCtxDestroy(CUcontext context)
{
    return cuCtxDestroy_v2(context);
}

API CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    return is_context(context) ? context_push(driver, context) : CUDA_ERROR_INVALID_CONTEXT;
}
ALSO(cuCtxPushCurrent_v2, cuCtxPushCurrent);

API CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
    struct driver *driver;
    struct context *context;
    CUresult result = driver_context(&driver, &context);
    if (result != CUDA_SUCCESS)
        return result;
    context = context_set(driver);
    context_leave(driver, context);
    if (out != NULL)
        *out = context;
    return CUDA_SUCCESS;
}
ALSO(cuCtxPopCurrent_v2, cuCtxPopCurrent);

API CUresult cuCtxSetCurrent(CUcontext context)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (context != NULL && !is_context(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    context_leave(driver, context_set(driver));
    return context != NULL ? context_push(driver, context) : CUDA_SUCCESS;
}

API CUresult cuCtxGetCurrent(CUcontext *out)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = context_set(driver);
    return CUDA_SUCCESS;
}

/* The current context, for a function that writes to `out`. */
static CUresult current_for(const void *out, struct driver **driver, struct context **context)
{
    CUresult result = driver_context(driver, context);
    if (result == CUDA_SUCCESS && out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return result;
}

API CUresult cuCtxGetDevice(CUdevice *out)
{
    struct driver *driver;
    struct context *context;
    CUresult result = current_for(out, &driver, &context);
    if (result == CUDA_SUCCESS)
        *out = context->device;
    return result;
}

API CUresult cuCtxGetDevice_v2(CUdevice *out, CUcontext context)
{
    struct driver *driver;
    if (context == NULL)
        return cuCtxGetDevice(out);
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_context(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    *out = context->device;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetFlags(unsigned *out)
{
    struct driver *driver;
    struct context *context;
    CUresult result = current_for(out, &driver, &context);
    if (result == CUDA_SUCCESS)
        *out = context->flags;
    return result;
}

API CUresult cuCtxGetId(CUcontext context, unsigned long long *out)
{
    struct driver *driver;
    struct context *current;
    CUresult result = driver_get(&driver);
    if (result == CUDA_SUCCESS && context == NULL)
        result = current_for(out, &driver, &current);
    if (result != CUDA_SUCCESS)
        return result;
    struct context *asked = context != NULL ? context : current;
    if (out == NULL || !is_context(asked))
        return CUDA_ERROR_INVALID_VALUE;
    *out = asked->number;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetApiVersion(CUcontext context, unsigned *out)
{
    enum { API_OF_CONTEXTS = 3020 };
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (context != NULL && !is_context(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    *out = API_OF_CONTEXTS;
    return CUDA_SUCCESS;
}

/* `context`: NULL for the current one. */
API CUresult cuCtxSynchronize_v2(CUcontext context)
{
    struct driver *driver;
    CUresult result = context == NULL ? driver_context(&driver, &context) : driver_get(&driver);
    if (result == CUDA_SUCCESS && !is_context(context))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        result = capture_any(driver, context->device);
    if (result != CUDA_SUCCESS)
        return result;
    queue_finish(driver, context->device);
    pool_synchronised(driver, context->device);
    return CUDA_SUCCESS;
}

API CUresult cuCtxSynchronize(void)
{
    return cuCtxSynchronize_v2(NULL);
}

API CUresult cuCtxGetCacheConfig(int *out)
{
    struct driver *driver;
    struct context *context;
    CUresult result = current_for(out, &driver, &context);
    if (result == CUDA_SUCCESS)
        *out = (int)context->cache_config;
    return result;
}

API CUresult cuCtxSetCacheConfig(int config)
{
    struct driver *driver;
    struct context *context;
    CUresult result = driver_context(&driver, &context);
    if (result == CUDA_SUCCESS)
        context->cache_config = (unsigned)config;
    return result;
}

API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    struct driver *driver;
    struct context *context;
    CUresult result = driver_context(&driver, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (least != NULL)
        *least = 0;
    if (greatest != NULL)
        *greatest = -5;
    return CUDA_SUCCESS;
}

API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    struct driver *driver;
    struct context *context;
    CUresult result = driver_context(&driver, &context);
    if (result != CUDA_SUCCESS)
        return result;
    return is_context(peer) && flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
