/* The primary context of each device: made by the first retain, ended by the last release. */
#include "cuda/context/context.h"

static CUresult primary_of(CUdevice device, struct driver **driver, struct context **primary)
{
    const struct sim_gpu *gpu;
    CUresult result = driver_device(device, driver, &gpu);
    if (result == CUDA_SUCCESS)
        *primary = &(*driver)->primaries[device];
    return result;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    struct driver *driver;
    struct context *primary;
    CUresult result = primary_of(device, &driver, &primary);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    if (primary->references == 0)
        result = context_open(driver, primary, device, primary->flags);
    if (result == CUDA_SUCCESS) {
        primary->references++;
        *out = primary;
    }
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    struct driver *driver;
    struct context *primary;
    CUresult result = primary_of(device, &driver, &primary);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver->mutex);
    bool retained = primary->references > 0;
    bool last = retained && --primary->references == 0;
    pthread_mutex_unlock(&driver->mutex);
    if (last)
        context_close(driver, primary);
    return retained ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

API CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return cuDevicePrimaryCtxRelease_v2(device);
}

API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    struct driver *driver;
    struct context *primary;
    CUresult result = primary_of(device, &driver, &primary);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver->mutex);
    bool active = primary->references > 0;
    primary->references = 0;
    pthread_mutex_unlock(&driver->mutex);
    if (active)
        context_close(driver, primary);
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return cuDevicePrimaryCtxReset_v2(device);
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    struct driver *driver;
    struct context *primary;
    CUresult result = primary_of(device, &driver, &primary);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags != NULL)
        *flags = primary->flags;
    if (active != NULL)
        *active = primary->references > 0;
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags)
{
    struct driver *driver;
    struct context *primary;
    CUresult result = primary_of(device, &driver, &primary);
    if (result == CUDA_SUCCESS)
        primary->flags = flags;
    return result;
}
ALSO(cuDevicePrimaryCtxSetFlags_v2, cuDevicePrimaryCtxSetFlags);
