/* Plain device memory, taken and given; and freeing, whatever the way it was taken. */
#include "cuda/memory/charge.h"
#include "cuda/pool/pool.h"

/* What an allocation returns through `address`, which the driver has set if it succeeded. */
#define SETTLE(charge, result, address)                                                            \
    charge_settle(charge, result, (result) == CUDA_SUCCESS ? *(address) : 0)

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    struct charge charge;
    CUresult result = charge_begin(&charge, bytes, POINTER_PLAIN);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuMemAlloc_v2)(address, bytes);
    return SETTLE(&charge, result, address);
}

CUresult cuMemAlloc(CUdeviceptr_v1 *address, unsigned int bytes)
{
    struct charge charge;
    CUresult result = charge_begin(&charge, bytes, POINTER_LOW);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuMemAlloc)(address, bytes);
    return SETTLE(&charge, result, address);
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    struct charge charge;
    CUresult result = charge_begin(&charge, bytes, POINTER_MANAGED);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuMemAllocManaged)(address, bytes, flags);
    return SETTLE(&charge, result, address);
}

static uint64_t area(uint64_t width, uint64_t height)
{
    uint64_t bytes;
    return __builtin_mul_overflow(width, height, &bytes) ? UINT64_MAX : bytes;
}

/* A row as it lies in memory: drivers round up to 512 bytes. */
static uint64_t pitched(uint64_t width)
{
    enum { PITCH = 512 };
    return width > UINT64_MAX - PITCH ? UINT64_MAX : (width + PITCH - 1) / PITCH * PITCH;
}

/* The driver chooses the pitch: reserve for what drivers choose, then for what it is. Reserving for
 * the width alone would let the driver go over the limit before we know. */
CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                            unsigned int element)
{
    struct charge charge;
    CUresult result = charge_begin(&charge, area(pitched(width), height), POINTER_PLAIN);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuMemAllocPitch_v2)(address, pitch, width, height, element);
    if (result == CUDA_SUCCESS && charge_correct(&charge, area(*pitch, height)) != 0) {
        OWN_CALL(REAL(cuMemFree_v2)(*address));
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return SETTLE(&charge, result, address);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *address, unsigned int *pitch, unsigned int width,
                         unsigned int height, unsigned int element)
{
    struct charge charge;
    CUresult result = charge_begin(&charge, area(pitched(width), height), POINTER_LOW);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuMemAllocPitch)(address, pitch, width, height, element);
    if (result == CUDA_SUCCESS && charge_correct(&charge, area(*pitch, height)) != 0) {
        OWN_CALL(REAL(cuMemFree)(*address));
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return SETTLE(&charge, result, address);
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    struct release release;
    release_begin(&release, HOLDING_MEMORY, address);
    return release_settle(&release, REAL(cuMemFree_v2)(address));
}

CUresult cuMemFree(CUdeviceptr_v1 address)
{
    struct release release;
    release_begin(&release, HOLDING_MEMORY, address);
    return release_settle(&release, REAL(cuMemFree)(address));
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    struct release release;
    release_begin(&release, HOLDING_MEMORY, address);
    release.stream = pool_stream_key(stream);
    return release_settle(&release, REAL(cuMemFreeAsync)(address, stream));
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    struct release release;
    release_begin(&release, HOLDING_MEMORY, address);
    release.stream = pool_stream_key(process_own_stream(stream));
    return release_settle(&release, REAL(cuMemFreeAsync_ptsz)(address, stream));
}
