#include "cuda/copy/transfer.h"
#include "cuda/array/contents.h"
#include "cuda/capture/capture.h"
#include "cuda/copy/block.h"
#include "cuda/memory/addresses.h"
#include "cuda/memory/memory.h"
#include "cuda/stream/host_call.h"
#include "cuda/stream/tasks.h"
#include "cuda/virtual/virtual.h"
#include <string.h>

enum { STAGED_BYTES = 65536 };

/* The memory behind `bytes` at `address`, made accessible; NULL when it is not all there. */
static void *accessible(struct driver *driver, CUdeviceptr address, size_t bytes, enum side side)
{
    struct allocation *found = addresses_find(&driver->memory, address);
    if (found == NULL)
        return side == ANYWHERE || host_memory_has(driver, address, bytes)
                   ? (void *)(uintptr_t)address
                   : NULL;
    if (addresses_access(&driver->memory, address, bytes) != 0)
        return NULL;
    return (void *)(uintptr_t)address;
}

static CUresult move(struct driver *driver, const struct transfer *transfer)
{
    pthread_mutex_lock(&driver->mutex);
    void *to = accessible(driver, transfer->to, transfer->bytes, transfer->to_side);
    void *from = accessible(driver, transfer->from, transfer->bytes, transfer->from_side);
    if (to != NULL && from != NULL)
        memmove(to, from, transfer->bytes);
    pthread_mutex_unlock(&driver->mutex);
    return to != NULL && from != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static int device_of(const struct allocation *found)
{
    if (found->mapping != NULL)
        return found->mapping->physical->device;
    return allocation_device(found);
}

/* Which device's memory is there? -1: none's. */
static int device_at(struct driver *driver, CUdeviceptr address)
{
    pthread_mutex_lock(&driver->mutex);
    const struct allocation *found = addresses_find(&driver->memory, address);
    int device = found == NULL ? -1 : device_of(found);
    pthread_mutex_unlock(&driver->mutex);
    return device;
}

/* The work of `bytes` from one device to another, or the host (-1). Between devices it is over the
 * link. */
static struct sim_task work_between(struct driver *driver, int device, int to_device,
                                    int from_device, uint64_t bytes)
{
    if (bytes == 0 || (to_device < 0 && from_device < 0))
        return NO_WORK;
    if (to_device == from_device)
        return task_memory(driver, device, 2 * bytes);
    return task_copy(driver, device, to_device >= 0 ? SIM_COPY_TO_DEVICE : SIM_COPY_TO_HOST, bytes);
}

static struct sim_task work_of(struct driver *driver, int device, CUdeviceptr to, CUdeviceptr from,
                               uint64_t bytes)
{
    return work_between(driver, device, device_at(driver, to), device_at(driver, from), bytes);
}

/* Does a synchronous copy return before it is done? What is small is staged on the way in. */
static bool returns_early(const struct sim_task *task, size_t bytes)
{
    return task->kind == SIM_MEMORY || (task->kind == SIM_COPY_TO_DEVICE && bytes <= STAGED_BYTES);
}

static CUresult copy(struct transfer transfer)
{
    struct driver *driver;
    struct context *context;
    CUresult result = driver_context(&driver, &context);
    if (result != CUDA_SUCCESS || transfer.bytes == 0)
        return result;
    int device = context->device;
    result = capture_asked(driver, NULL, device);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_task task = work_of(driver, device, transfer.to, transfer.from, transfer.bytes);
    host_calls_wait(driver, NULL, device);
    if (task.kind != SIM_MEMORY)
        queue_wait(driver, device, queue_reach(driver, NULL, device));
    result = move(driver, &transfer);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_reach reach = queue_submit(driver, NULL, device, task, NULL);
    if (!returns_early(&task, transfer.bytes))
        queue_wait(driver, device, reach);
    return CUDA_SUCCESS;
}

static CUresult copy_async(struct transfer transfer, CUstream handle)
{
    struct driver *driver;
    struct stream *stream;
    int device;
    CUresult result = queue_find(handle, &driver, &stream, &device);
    if (result == CUDA_SUCCESS && capture_has(stream))
        return capture_copy(driver, stream, transfer.to, transfer.from, transfer.bytes);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_task task = work_of(driver, device, transfer.to, transfer.from, transfer.bytes);
    host_calls_wait(driver, stream, device);
    if (transfer.bytes > 0)
        result = move(driver, &transfer);
    if (result == CUDA_SUCCESS)
        queue_submit(driver, stream, device, task, NULL);
    return result;
}

/* A row of a block of bytes on one side. Host memory and unified addresses are told apart by what
 * is there. */
static CUdeviceptr row_of(struct driver *driver, const struct copy_side *side, size_t y, size_t z)
{
    if (side->memory == BLOCK_ARRAY)
        return (CUdeviceptr)(uintptr_t)array_row(driver, side, y, z);
    CUdeviceptr start =
        side->memory == BLOCK_HOST ? (CUdeviceptr)(uintptr_t)side->host : side->device;
    return start + ((side->z + z) * side->height + side->y + y) * side->pitch + side->x_bytes;
}

static int device_of_side(struct driver *driver, const struct copy_side *side)
{
    return side->memory == BLOCK_ARRAY ? array_device(side)
                                       : device_at(driver, row_of(driver, side, 0, 0));
}

/* A graph may run after its arrays are gone. */
static CUresult still_there(const struct copy_side *side, const struct copy_params *params)
{
    return side->memory == BLOCK_ARRAY ? array_covers(side, params) : CUDA_SUCCESS;
}

CUresult copy_run(struct driver *driver, int device, const struct copy_params *params,
                  struct sim_task *out)
{
    CUresult result = still_there(&params->from, params);
    if (result == CUDA_SUCCESS)
        result = still_there(&params->to, params);
    if (result != CUDA_SUCCESS)
        return result;
    for (size_t z = 0; z < params->depth; z++)
        for (size_t y = 0; y < params->height && result == CUDA_SUCCESS; y++) {
            struct transfer row = {row_of(driver, &params->to, y, z),
                                   row_of(driver, &params->from, y, z), params->width_bytes,
                                   ANYWHERE, ANYWHERE};
            result = params->width_bytes > 0 ? move(driver, &row) : CUDA_SUCCESS;
        }
    *out = work_between(driver, device, device_of_side(driver, &params->to),
                        device_of_side(driver, &params->from),
                        params->width_bytes * params->height * params->depth);
    return result;
}

static struct transfer host_to_device(CUdeviceptr to, const void *from, size_t bytes)
{
    return (struct transfer){to, (CUdeviceptr)(uintptr_t)from, bytes, ON_DEVICE, ANYWHERE};
}

static struct transfer device_to_host(void *to, CUdeviceptr from, size_t bytes)
{
    return (struct transfer){(CUdeviceptr)(uintptr_t)to, from, bytes, ANYWHERE, ON_DEVICE};
}

static struct transfer device_to_device(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return (struct transfer){to, from, bytes, ON_DEVICE, ON_DEVICE};
}

static struct transfer unified(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return (struct transfer){to, from, bytes, ANYWHERE, ANYWHERE};
}

API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    return copy(host_to_device(to, from, bytes));
}
ALSO(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds);

API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    return copy(device_to_host(to, from, bytes));
}
ALSO(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds);

API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy(device_to_device(to, from, bytes));
}
ALSO(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds);

API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy(unified(to, from, bytes));
}
ALSO(cuMemcpy, cuMemcpy_ptds);

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return copy_async(host_to_device(to, from, bytes), stream);
}
ALSO(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz);

API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_async(device_to_host(to, from, bytes), stream);
}
ALSO(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz);

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_async(device_to_device(to, from, bytes), stream);
}
ALSO(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz);

API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_async(unified(to, from, bytes), stream);
}
ALSO(cuMemcpyAsync, cuMemcpyAsync_ptsz);
