/* The first memory interface, of 32-bit addresses and sizes. Its names without `_v2` are still
 * exported, and still mean this. */
#include "cuda/memory/memory.h"

static uint32_t clamp(uint64_t value)
{
    return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

API CUresult cuMemAlloc(uint32_t *out, unsigned bytes)
{
    struct driver *driver;
    struct context *context;
    CUdeviceptr address;
    CUresult result = driver_context(&driver, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct allocation wanted = {.bytes = bytes, .context = context};
    result = memory_allocate(driver, wanted, true, &address);
    if (result == CUDA_SUCCESS)
        *out = (uint32_t)address;
    return result;
}

API CUresult cuMemAllocPitch(uint32_t *out, unsigned *pitch, unsigned width, unsigned height,
                             unsigned element)
{
    size_t row;
    uint64_t bytes;
    CUresult result = memory_rows(width, height, element, &row, &bytes);
    if (result != CUDA_SUCCESS)
        return result;
    if (pitch == NULL || bytes > UINT32_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    result = cuMemAlloc(out, (unsigned)bytes);
    if (result == CUDA_SUCCESS)
        *pitch = (unsigned)row;
    return result;
}

API CUresult cuMemFree(uint32_t address)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    return result == CUDA_SUCCESS ? memory_free(driver, address) : result;
}

API CUresult cuMemGetInfo(unsigned *free_bytes, unsigned *total_bytes)
{
    struct driver *driver;
    struct context *context;
    uint64_t available, total;
    CUresult result = driver_context(&driver, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (free_bytes == NULL || total_bytes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memory_figures(driver, context->device, &available, &total);
    *free_bytes = clamp(available);
    *total_bytes = clamp(total);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device)
{
    struct driver *driver;
    const struct sim_gpu *gpu;
    CUresult result = driver_device(device, &driver, &gpu);
    if (result != CUDA_SUCCESS)
        return result;
    if (bytes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = clamp(gpu->memory_bytes - gpu->reserved_bytes);
    return CUDA_SUCCESS;
}

/* Contexts as they were counted before there was a current one of each thread. */
API CUresult cuCtxAttach(CUcontext *out, unsigned flags)
{
    struct driver *driver;
    struct context *context;
    CUresult result = driver_context(&driver, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    context->references++;
    *out = context;
    return CUDA_SUCCESS;
}

API CUresult cuCtxDestroy_v2(CUcontext context);

API CUresult cuCtxDetach(CUcontext context)
{
    struct driver *driver;
    struct context *current;
    CUresult result = driver_context(&driver, &current);
    if (result != CUDA_SUCCESS)
        return result;
    if (context == NULL || context != current)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context->references == 0)
        return cuCtxDestroy_v2(context);
    context->references--;
    return CUDA_SUCCESS;
}
