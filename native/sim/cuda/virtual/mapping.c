/* cuMemMap: physical memory at reserved addresses, and who may touch it. */
#include "cuda/memory/addresses.h"
#include "cuda/memory/location.h"
#include "cuda/virtual/virtual.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Back to addresses without memory. */
static void withdraw(struct allocation *item)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (item->committed)
        mmap((void *)(uintptr_t)item->start, item->bytes, PROT_NONE, flags, -1, 0);
    item->committed = false;
}

static bool vacant(struct driver *driver, CUdeviceptr address, uint64_t bytes)
{
    for (size_t i = 0; i < driver->memory.count; i++) {
        const struct allocation *item = &driver->memory.items[i];
        if (item->start < address + bytes && address < item->start + item->bytes)
            return false;
    }
    return true;
}

static CUresult map(struct driver *driver, const struct allocation *wanted,
                    const struct mapping *how)
{
    if (reservation_of(driver, wanted->start, wanted->bytes) == NULL ||
        !vacant(driver, wanted->start, wanted->bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct allocation item = *wanted;
    item.number = driver_number(driver);
    item.mapping = malloc(sizeof *item.mapping);
    if (item.mapping == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *item.mapping = *how;
    if (addresses_insert(&driver->memory, &item) != 0) {
        free(item.mapping);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    how->physical->references++;
    return CUDA_SUCCESS;
}

API CUresult cuMemMap(CUdeviceptr start, size_t bytes, size_t offset,
                      CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (bytes == 0 || !virtual_aligned(start | bytes | offset) || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct allocation wanted = {.start = start, .bytes = bytes, .mapped = bytes};
    result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    struct mapping how = {.physical = physical_find(driver, handle), .offset = offset};
    if (how.physical != NULL && offset <= how.physical->bytes &&
        bytes <= how.physical->bytes - offset)
        result = map(driver, &wanted, &how);
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

/* Do mappings begin and end with the range and cover it without a gap? */
static bool covered(struct driver *driver, CUdeviceptr start, uint64_t bytes)
{
    CUdeviceptr end = start + bytes;
    while (start < end) {
        const struct allocation *item = mapping_at(driver, start);
        if (item == NULL || item->start != start || item->bytes > end - start)
            return false;
        start += item->bytes;
    }
    return bytes > 0 && start == end;
}

static void unmap(struct driver *driver, CUdeviceptr start)
{
    struct allocation *item = mapping_at(driver, start);
    struct mapping *mapping = item->mapping;
    withdraw(item);
    addresses_take(&driver->memory, item);
    physical_drop(driver, mapping->physical);
    free(mapping);
}

API CUresult cuMemUnmap(CUdeviceptr start, size_t bytes)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver->mutex);
    bool whole = covered(driver, start, bytes);
    for (CUdeviceptr at = start; whole && at < start + bytes;) {
        uint64_t size = mapping_at(driver, at)->bytes;
        unmap(driver, at);
        at += size;
    }
    pthread_mutex_unlock(&driver->mutex);
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool is_device(const struct driver *driver, const CUmemLocation *location)
{
    return location->type == LOCATION_DEVICE && location->id >= 0 &&
           (unsigned)location->id < driver->device_count;
}

static bool is_access(const struct driver *driver, const CUmemAccessDesc *access)
{
    return is_device(driver, &access->location) &&
           (access->flags == NO_ACCESS || access->flags == READ || access->flags == READ_WRITE);
}

static void set_access(struct allocation *item, const CUmemAccessDesc *wanted, size_t count)
{
    for (size_t i = 0; i < count; i++)
        item->mapping->access[wanted[i].location.id] = (uint8_t)wanted[i].flags;
    if (!mapping_accessible(item->mapping))
        withdraw(item);
}

API CUresult cuMemSetAccess(CUdeviceptr start, size_t bytes, const CUmemAccessDesc *wanted,
                            size_t count)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (wanted == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!is_access(driver, &wanted[i]))
            return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    bool whole = covered(driver, start, bytes);
    for (CUdeviceptr at = start; whole && at < start + bytes;) {
        struct allocation *item = mapping_at(driver, at);
        set_access(item, wanted, count);
        at += item->bytes;
    }
    pthread_mutex_unlock(&driver->mutex);
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                            CUdeviceptr address)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags == NULL || location == NULL || !is_device(driver, location))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    const struct allocation *item = mapping_at(driver, address);
    if (item != NULL)
        *flags = item->mapping->access[location->id];
    pthread_mutex_unlock(&driver->mutex);
    return item != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
