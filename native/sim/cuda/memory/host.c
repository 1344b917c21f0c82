/* Pinned host memory: ordinary memory of the process. It is not device memory and not charged, and
 * ends with the context that it was allocated or registered in. */
#include "cuda/capture/capture.h"
#include "cuda/memory/addresses.h"
#include "cuda/memory/memory.h"
#include <stdlib.h>

enum { PINNED_ALIGNMENT = 4096 };
enum { EVERY_ALLOC_FLAG = 7, READ_ONLY = 8, EVERY_REGISTER_FLAG = 15 };

/* Any of `bytes` from there on. driver->mutex is held. */
static bool overlaps(const struct driver *driver, CUdeviceptr start, uint64_t bytes)
{
    for (size_t i = 0; i < driver->host_memory.count; i++) {
        const struct allocation *item = &driver->host_memory.items[i];
        if (item->start < start + bytes && start < item->start + item->bytes)
            return true;
    }
    return false;
}

static CUresult enter(struct driver *driver, struct allocation wanted)
{
    CUresult result = CUDA_SUCCESS;
    wanted.host = true;
    wanted.number = driver_number(driver);
    pthread_mutex_lock(&driver->mutex);
    if (overlaps(driver, wanted.start, wanted.bytes))
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    else if (addresses_insert(&driver->host_memory, &wanted) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

/* Take out what begins there; false if nothing does that is of this sort. */
static bool leave(struct driver *driver, const void *memory, bool registered)
{
    CUdeviceptr start = (CUdeviceptr)(uintptr_t)memory;
    pthread_mutex_lock(&driver->mutex);
    struct allocation *found = addresses_find(&driver->host_memory, start);
    bool ours = found != NULL && found->start == start && found->registered == registered;
    if (ours)
        addresses_take(&driver->host_memory, found);
    pthread_mutex_unlock(&driver->mutex);
    return ours;
}

void host_memory_free_all(struct driver *driver, const struct context *context)
{
    for (size_t i = driver->host_memory.count; i-- > 0;) {
        struct allocation *item = &driver->host_memory.items[i];
        if (item->context != context)
            continue;
        if (!item->registered)
            free((void *)(uintptr_t)item->start);
        addresses_take(&driver->host_memory, item);
    }
}

bool host_memory_has(const struct driver *driver, CUdeviceptr address, uint64_t bytes)
{
    const struct allocation *found = addresses_find(&driver->host_memory, address);
    return found != NULL && bytes <= found->bytes - (address - found->start);
}

API CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
    struct driver *driver;
    struct context *context;
    CUresult result = driver_context(&driver, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || bytes == 0 || flags > EVERY_ALLOC_FLAG)
        return CUDA_ERROR_INVALID_VALUE;
    result = capture_unsafe(driver);
    if (result != CUDA_SUCCESS)
        return result;
    void *memory;
    if (posix_memalign(&memory, PINNED_ALIGNMENT, bytes) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = enter(driver, (struct allocation){.start = (CUdeviceptr)(uintptr_t)memory,
                                               .bytes = bytes,
                                               .context = context,
                                               .host_flags = flags});
    if (result == CUDA_SUCCESS)
        *out = memory;
    else
        free(memory);
    return result;
}

API CUresult cuMemAllocHost_v2(void **out, size_t bytes)
{
    return cuMemHostAlloc(out, bytes, 0);
}

API CUresult cuMemFreeHost(void *memory)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (!leave(driver, memory, false))
        return CUDA_ERROR_INVALID_VALUE;
    free(memory);
    return CUDA_SUCCESS;
}

API CUresult cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags)
{
    struct driver *driver;
    struct context *context;
    CUresult result = driver_context(&driver, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (memory == NULL || bytes == 0 || flags > EVERY_REGISTER_FLAG)
        return CUDA_ERROR_INVALID_VALUE;
    if ((flags & READ_ONLY) != 0)
        return CUDA_ERROR_NOT_SUPPORTED; /* device attribute 113 */
    result = capture_unsafe(driver);
    if (result != CUDA_SUCCESS)
        return result;
    return enter(driver, (struct allocation){.start = (CUdeviceptr)(uintptr_t)memory,
                                             .bytes = bytes,
                                             .context = context,
                                             .registered = true});
}

API CUresult cuMemHostUnregister(void *memory)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (memory == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return leave(driver, memory, true) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

/* What a function that asks about pinned memory is asked about: a copy. */
static CUresult at(const void *memory, struct allocation *out)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver->mutex);
    const struct allocation *found =
        addresses_find(&driver->host_memory, (CUdeviceptr)(uintptr_t)memory);
    if (found != NULL)
        *out = *found;
    pthread_mutex_unlock(&driver->mutex);
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *memory, unsigned flags)
{
    struct allocation found;
    CUresult result = at(memory, &found);
    if (result == CUDA_SUCCESS && (out == NULL || flags != 0))
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *out = (CUdeviceptr)(uintptr_t)memory;
    return result;
}

/* As they were given. */
API CUresult cuMemHostGetFlags(unsigned *out, void *memory)
{
    struct allocation found;
    CUresult result = at(memory, &found);
    if (result == CUDA_SUCCESS && (out == NULL || found.registered))
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *out = found.host_flags;
    return result;
}
