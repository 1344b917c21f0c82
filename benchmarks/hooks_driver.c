/* A driver whose every function costs next to nothing, so that what is left is the shim's.
 *
 * One device of 2^40 bytes. It counts nothing and refuses only what is more than that. Work has
 * ended as soon as it is asked for, so that none is throttled.
 */
#include "cuda_types.h"

#define API __attribute__((visibility("default"), noinline))

static const size_t physical = (size_t)1 << 40;
static CUdeviceptr next_address = 0x7000000000;
static char handle;

API CUresult cuInit(unsigned int flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = (CUcontext)&handle;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    (void)device;
    for (int index = 0; index < 16; index++)
        uuid->bytes[index] = (unsigned char)index;
    return CUDA_SUCCESS;
}

/* Addresses go round in 4096 places: as a program's that frees what it takes. */
API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    if (bytes > physical)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *address = 0x7000000000 + ((next_address++ & 4095) << 20); /* pieces of 1 MiB side by side */
    return CUDA_SUCCESS;
}

API CUresult cuMemFree_v2(CUdeviceptr address)
{
    (void)address;
    return CUDA_SUCCESS;
}

/* One pool, which has reserved a piece of 32 MiB and never needs more. It gives out again what came
 * back last. */
enum { POOL_PLACES = 1 << 16 };

static CUdeviceptr pool_free[POOL_PLACES];
static int pool_free_count, pool_used;

API CUresult cuDeviceGetCount(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    (void)device;
    *pool = (CUmemoryPool)&handle;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    return cuDeviceGetMemPool(pool, device);
}

API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    (void)pool, (void)attribute;
    *(uint64_t *)value = 32 << 20;
    return CUDA_SUCCESS;
}

API CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    (void)bytes, (void)stream;
    if (pool_free_count > 0)
        *address = pool_free[--pool_free_count];
    else if (pool_used < POOL_PLACES)
        *address = 0x7100000000 + (CUdeviceptr)pool_used++ * 512;
    else
        return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    (void)stream;
    pool_free[pool_free_count++] = address;
    return CUDA_SUCCESS;
}

API CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
                         const CUmemAllocationProp *properties, unsigned long long flags)
{
    (void)properties, (void)flags;
    return cuMemAlloc_v2(out, bytes);
}

API CUresult cuMemRelease(CUmemGenericAllocationHandle memory)
{
    return cuMemFree_v2(memory);
}

API CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    *available = *total = physical;
    return CUDA_SUCCESS;
}

API CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                            unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                            unsigned int block_z, unsigned int shared, CUstream stream,
                            void **parameters, void **extra)
{
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y;
    (void)block_z, (void)shared, (void)stream, (void)parameters, (void)extra;
    return CUDA_SUCCESS;
}

API CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    (void)flags;
    *event = (CUevent)&handle;
    return CUDA_SUCCESS;
}

API CUresult cuEventDestroy_v2(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}

API CUresult cuEventRecord(CUevent event, CUstream stream)
{
    (void)event, (void)stream;
    return CUDA_SUCCESS;
}

API CUresult cuEventQuery(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}

API CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    (void)mode;
    return CUDA_SUCCESS;
}
