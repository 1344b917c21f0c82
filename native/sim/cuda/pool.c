/* Memory pools and stream-ordered allocation. Simply: allocations happen at once and go back at
 * once; a pool counts, and keeps nothing in reserve. */
#include "cuda/memory.h"
#include "cuda/queue.h"
#include <stdlib.h>

enum attribute {
    REUSE_FOLLOW_EVENT = 1,
    REUSE_INTERNAL_DEPENDENCIES = 3,
    RELEASE_THRESHOLD = 4,
    RESERVED_CURRENT = 5,
    RESERVED_HIGH = 6,
    USED_CURRENT = 7,
    USED_HIGH = 8,
};

static CUresult pool_of(CUdevice device, struct pool **out, bool standard)
{
    struct driver *driver;
    const struct sim_gpu *gpu;
    CUresult result = driver_device(device, &driver, &gpu);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = standard ? &driver->default_pools[device] : driver->pools[device];
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice device)
{
    return pool_of(device, out, true);
}

API CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device)
{
    return pool_of(device, out, false);
}

static bool is_pool(const struct pool *pool)
{
    return pool != NULL && pool->kind == POOL;
}

API CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    struct driver *driver;
    const struct sim_gpu *gpu;
    CUresult result = driver_device(device, &driver, &gpu);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_pool(pool) || pool->device != device)
        return CUDA_ERROR_INVALID_VALUE;
    driver->pools[device] = pool;
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    if (!is_pool(pool) || value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case RELEASE_THRESHOLD:
        *(uint64_t *)value = pool->release_threshold;
        return CUDA_SUCCESS;
    case RESERVED_CURRENT:
    case USED_CURRENT:
        *(uint64_t *)value = pool->used;
        return CUDA_SUCCESS;
    case RESERVED_HIGH:
    case USED_HIGH:
        *(uint64_t *)value = pool->used_high;
        return CUDA_SUCCESS;
    case REUSE_FOLLOW_EVENT ... REUSE_INTERNAL_DEPENDENCIES:
        *(int *)value = 1;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    if (!is_pool(pool) || value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == RELEASE_THRESHOLD)
        pool->release_threshold = *(uint64_t *)value;
    if (attribute == RESERVED_HIGH || attribute == USED_HIGH)
        pool->used_high = pool->used;
    return attribute >= REUSE_FOLLOW_EVENT && attribute <= USED_HIGH ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    (void)keep;
    return is_pool(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool,
                                     CUstream handle)
{
    struct driver *driver;
    struct stream *stream;
    int device;
    CUresult result = driver_get(&driver);
    if (result == CUDA_SUCCESS)
        result = queue_stream(driver, handle, &stream, &device);
    if (result != CUDA_SUCCESS)
        return result;
    struct context *context = stream != NULL ? stream->context : context_current(driver);
    if (!is_pool(pool) || pool->device != device)
        return CUDA_ERROR_INVALID_VALUE;
    struct allocation wanted = {.bytes = bytes, .context = context, .pool = pool};
    return memory_allocate(driver, wanted, false, out);
}
ALSO(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz);

API CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream handle)
{
    struct driver *driver;
    struct stream *stream;
    int device;
    CUresult result = driver_get(&driver);
    if (result == CUDA_SUCCESS)
        result = queue_stream(driver, handle, &stream, &device);
    return result == CUDA_SUCCESS
               ? cuMemAllocFromPoolAsync(out, bytes, driver->pools[device], handle)
               : result;
}
ALSO(cuMemAllocAsync, cuMemAllocAsync_ptsz);

API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
    struct driver *driver;
    struct stream *stream;
    int device;
    CUresult result = driver_get(&driver);
    if (result == CUDA_SUCCESS)
        result = queue_stream(driver, handle, &stream, &device);
    return result == CUDA_SUCCESS ? memory_free(driver, address) : result;
}
ALSO(cuMemFreeAsync, cuMemFreeAsync_ptsz);
