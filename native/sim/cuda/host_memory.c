/* Pinned host memory: ordinary memory of the process. It is not device memory and not charged. */
#include "cuda/driver.h"
#include <stdlib.h>

enum { PINNED_ALIGNMENT = 4096 };

API CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
    struct driver *driver;
    struct context *context;
    CUresult result = driver_context(&driver, &context);
    if (result != CUDA_SUCCESS)
        return result;
    (void)flags;
    if (out == NULL || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    return posix_memalign(out, PINNED_ALIGNMENT, bytes) == 0 ? CUDA_SUCCESS
                                                             : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuMemAllocHost_v2(void **out, size_t bytes)
{
    return cuMemHostAlloc(out, bytes, 0);
}

API CUresult cuMemFreeHost(void *memory)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result == CUDA_SUCCESS)
        free(memory);
    return result;
}

API CUresult cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    (void)flags;
    if (result == CUDA_SUCCESS && (memory == NULL || bytes == 0))
        return CUDA_ERROR_INVALID_VALUE;
    return result;
}

API CUresult cuMemHostUnregister(void *memory)
{
    struct driver *driver;
    (void)memory;
    return driver_get(&driver);
}

API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *memory, unsigned flags)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    (void)flags;
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || memory == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}
