#include "cuda/memory/memory.h"
#include "core/ledger.h"
#include "cuda/capture/capture.h"
#include "cuda/ipc/ipc.h"
#include "cuda/memory/addresses.h"
#include "cuda/memory/taken.h"
#include "cuda/stream/queue.h"

enum { PITCH = 512 };

/* At the place it has in a slab. */
static int add_in_slab(struct driver *driver, struct allocation *wanted, CUdeviceptr *out)
{
    wanted->start = wanted->taken.place;
    wanted->mapped = wanted->taken.slab->place;
    wanted->committed = wanted->managed;
    *out = wanted->start;
    return addresses_insert(&driver->memory, wanted);
}

/* driver->mutex is held. */
static CUresult allocate_in(struct driver *driver, struct allocation *wanted, bool below_4g,
                            CUdeviceptr *out)
{
    enum memory_kind kind = wanted->managed ? MEMORY_MANAGED : below_4g ? MEMORY_LOW : MEMORY_PLAIN;
    CUresult result = taken_begin(driver, wanted->context, kind, wanted->bytes, &wanted->taken);
    if (result != CUDA_SUCCESS)
        return result;
    wanted->number = driver_number(driver);
    int error = wanted->taken.slab != NULL ? add_in_slab(driver, wanted, out)
                                           : addresses_add(&driver->memory, wanted, below_4g, out);
    if (error == 0)
        return CUDA_SUCCESS;
    taken_end(driver, &wanted->taken);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult memory_allocate(struct driver *driver, struct allocation wanted, bool below_4g,
                         CUdeviceptr *out)
{
    if (out == NULL || wanted.bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    CUresult result = allocate_in(driver, &wanted, below_4g, out);
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

static void settle(struct driver *driver, struct allocation *gone, struct pool_stream stream)
{
    if (gone->pool != NULL)
        pool_give(driver, gone, stream);
    else if (gone->opened != NULL) /* the process that made it pays for it */
        ipc_closed(driver, gone);
    else
        taken_end(driver, &gone->taken);
}

CUresult memory_free_in(struct driver *driver, CUdeviceptr address, struct pool_stream stream)
{
    struct allocation gone;
    if (address == 0)
        return CUDA_SUCCESS;
    struct graph_block *block = block_at(driver, address);
    if (block != NULL)
        return block_free(driver, block);
    pthread_mutex_lock(&driver->mutex);
    const struct allocation *item = addresses_find(&driver->memory, address);
    bool found =
        item != NULL && item->opened == NULL && addresses_remove(&driver->memory, address, &gone);
    if (found)
        settle(driver, &gone, stream);
    pthread_mutex_unlock(&driver->mutex);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The device that the work on an allocation from a pool is waited for on; -1 for any other. */
static int device_to_wait_for(struct driver *driver, CUdeviceptr address)
{
    pthread_mutex_lock(&driver->mutex);
    const struct allocation *found = addresses_find(&driver->memory, address);
    int device = found != NULL && found->pool != NULL ? found->pool->device : -1;
    pthread_mutex_unlock(&driver->mutex);
    return device;
}

CUresult memory_free(struct driver *driver, CUdeviceptr address)
{
    int device = device_to_wait_for(driver, address);
    if (device >= 0)
        queue_finish(driver, device);
    return memory_free_in(driver, address, POOL_NO_STREAM);
}

void memory_free_all(struct driver *driver, const struct context *context)
{
    struct allocation gone;
    for (size_t i = driver->memory.count; i-- > 0;) {
        const struct allocation *item = &driver->memory.items[i];
        if (item->context == context && item->block == NULL &&
            addresses_remove(&driver->memory, item->start, &gone))
            settle(driver, &gone, POOL_NO_STREAM);
    }
}

void memory_figures(struct driver *driver, CUdevice device, uint64_t *free_bytes,
                    uint64_t *total_bytes)
{
    unsigned gpu = driver->gpus[device];
    uint64_t now = sim_lock(driver->state);
    sim_reap(driver->state, now);
    uint64_t used = ledger_used(driver->state, gpu);
    sim_unlock(driver->state);
    *total_bytes = ledger_capacity(driver->state, gpu);
    *free_bytes = *total_bytes - used;
}

/* In the current context. */
static CUresult allocate(uint64_t bytes, bool managed, CUdeviceptr *out)
{
    struct driver *driver;
    struct context *context;
    CUresult result = driver_context(&driver, &context);
    if (result != CUDA_SUCCESS)
        return result;
    result = capture_unsafe(driver);
    if (result != CUDA_SUCCESS)
        return result;
    struct allocation wanted = {.bytes = bytes, .context = context, .managed = managed};
    return memory_allocate(driver, wanted, false, out);
}

API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    return allocate(bytes, false, out);
}

API CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags)
{
    enum { ATTACH_GLOBAL = 1, ATTACH_HOST = 2 };
    if (flags != ATTACH_GLOBAL && flags != ATTACH_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    return allocate(bytes, true, out);
}

CUresult memory_rows(size_t width, size_t height, unsigned element, size_t *pitch, uint64_t *bytes)
{
    if ((element != 4 && element != 8 && element != 16) || width > SIZE_MAX - PITCH)
        return CUDA_ERROR_INVALID_VALUE;
    *pitch = (width + PITCH - 1) / PITCH * PITCH;
    if (__builtin_mul_overflow((uint64_t)*pitch, (uint64_t)height, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

API CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
                                unsigned element)
{
    size_t row;
    uint64_t bytes;
    CUresult result = memory_rows(width, height, element, &row, &bytes);
    if (result == CUDA_SUCCESS && pitch == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = allocate(bytes, false, out);
    if (result == CUDA_SUCCESS)
        *pitch = row;
    return result;
}

API CUresult cuMemFree_v2(CUdeviceptr address)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result == CUDA_SUCCESS)
        result = capture_unsafe(driver);
    return result == CUDA_SUCCESS ? memory_free(driver, address) : result;
}

API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
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
    *free_bytes = available;
    *total_bytes = total;
    return CUDA_SUCCESS;
}

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *bytes, CUdeviceptr address)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver->mutex);
    const struct allocation *found = addresses_find(&driver->memory, address);
    if (found == NULL)
        found = addresses_find(&driver->host_memory, address);
    if (found != NULL && start != NULL)
        *start = found->start;
    if (found != NULL && bytes != NULL)
        *bytes = found->bytes;
    pthread_mutex_unlock(&driver->mutex);
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
