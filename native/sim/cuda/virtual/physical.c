/* cuMemCreate: physical memory by handle. */
#include "core/ledger.h"
#include "core/share.h"
#include "cuda/memory/location.h"
#include "cuda/virtual/virtual.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define FIRST_HANDLE UINT64_C(0x20000000)

enum { HANDLE_STEP = 16, PINNED = 1 };

static CUmemGenericAllocationHandle handle_of(size_t place)
{
    return FIRST_HANDLE + HANDLE_STEP * place;
}

int physical_enter(struct driver *driver, struct physical *physical)
{
    struct physical_table *table = &driver->physicals;
    size_t place = 0;
    while (place < table->count && table->items[place] != NULL)
        place++;
    if (place == table->count) {
        size_t count = table->count > 0 ? 2 * table->count : 64;
        struct physical **items = realloc(table->items, count * sizeof(struct physical *));
        if (items == NULL)
            return -ENOMEM;
        for (size_t fresh = table->count; fresh < count; fresh++)
            items[fresh] = NULL;
        *table = (struct physical_table){items, count};
    }
    table->items[place] = physical;
    physical->handle = handle_of(place);
    physical->number = driver_number(driver);
    physical->handles = physical->references = 1;
    return 0;
}

static struct physical **place_of(const struct driver *driver, CUmemGenericAllocationHandle handle)
{
    uint64_t place = (handle - FIRST_HANDLE) / HANDLE_STEP;
    bool one = place < driver->physicals.count && handle_of(place) == handle;
    return one ? &driver->physicals.items[place] : NULL;
}

struct physical *physical_find(const struct driver *driver, CUmemGenericAllocationHandle handle)
{
    struct physical **place = place_of(driver, handle);
    return place != NULL && *place != NULL && (*place)->handles > 0 ? *place : NULL;
}

/* Does another handle of this process stand for the same shared memory? */
static bool held_otherwise(const struct driver *driver, uint64_t share)
{
    for (size_t i = 0; i < driver->physicals.count; i++)
        if (driver->physicals.items[i] != NULL && driver->physicals.items[i]->share == share)
            return true;
    return false;
}

static void discharge(struct driver *driver, const struct physical *gone)
{
    if (gone->device == ON_HOST || gone->multicast ||
        (gone->share != 0 && held_otherwise(driver, gone->share)))
        return;
    sim_lock(driver->state);
    if (gone->share != 0)
        share_end(driver->state, driver->process, gone->share);
    else
        ledger_release(driver->process, driver->gpus[gone->device], gone->bytes);
    sim_unlock(driver->state);
}

void physical_drop(struct driver *driver, struct physical *physical)
{
    if (--physical->references > 0)
        return;
    *place_of(driver, physical->handle) = NULL;
    while (physical->bindings != NULL)
        physical_unbind(driver, &physical->bindings);
    discharge(driver, physical);
    if (physical->file != NO_FILE)
        close(physical->file);
    free(physical);
}

void physical_unbind(struct driver *driver, struct binding **at)
{
    struct binding *gone = *at;
    *at = gone->next;
    physical_drop(driver, gone->memory);
    free(gone);
}

/* What is wanted, with its location resolved, and the device that it is on. */
static CUresult check(const struct driver *driver, const CUmemAllocationProp *asked,
                      CUmemAllocationProp *wanted, int *device)
{
    if (asked == NULL || asked->type != PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    *wanted = *asked;
    CUresult result = location_resolve(driver, &wanted->location, device);
    if (result != CUDA_SUCCESS)
        return result;
    if (wanted->location.type == LOCATION_HOST && wanted->requestedHandleTypes != 0)
        return CUDA_ERROR_INVALID_VALUE; /* such memory cannot be exported */
    return (wanted->requestedHandleTypes & ~FILE_DESCRIPTOR) == 0 ? CUDA_SUCCESS
                                                                  : CUDA_ERROR_NOT_SUPPORTED;
}

/* Take the memory and enter it; driver->mutex is held. */
static CUresult take(struct driver *driver, struct physical *physical)
{
    if (physical->device != ON_HOST) {
        unsigned gpu = driver->gpus[physical->device];
        uint64_t now = sim_lock(driver->state);
        int charged = ledger_charge(driver->state, driver->process, gpu, physical->bytes, now);
        sim_unlock(driver->state);
        if (charged != 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (physical_enter(driver, physical) == 0)
        return CUDA_SUCCESS;
    discharge(driver, physical);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
                         const CUmemAllocationProp *asked, unsigned long long flags)
{
    struct driver *driver;
    CUmemAllocationProp wanted;
    int device;
    CUresult result = driver_get(&driver);
    if (result == CUDA_SUCCESS)
        result = check(driver, asked, &wanted, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || bytes == 0 || !virtual_aligned(bytes) || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct physical *physical = calloc(1, sizeof *physical);
    if (physical == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    physical->device = device;
    physical->bytes = bytes;
    physical->file = NO_FILE;
    physical->properties = wanted;
    pthread_mutex_lock(&driver->mutex);
    result = take(driver, physical);
    if (result == CUDA_SUCCESS)
        *out = physical->handle;
    pthread_mutex_unlock(&driver->mutex);
    if (result != CUDA_SUCCESS)
        free(physical);
    return result;
}

API CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver->mutex);
    struct physical *found = physical_find(driver, handle);
    if (found != NULL) {
        found->handles--;
        physical_drop(driver, found);
    }
    pthread_mutex_unlock(&driver->mutex);
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The handle has the value it had when the memory was mapped, even if it was released since. */
API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    const struct allocation *item = mapping_at(driver, (CUdeviceptr)(uintptr_t)address);
    if (item != NULL) {
        item->mapping->physical->handles++;
        item->mapping->physical->references++;
        *out = item->mapping->physical->handle;
    }
    pthread_mutex_unlock(&driver->mutex);
    return item != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *asked,
                                           int option)
{
    enum { MINIMUM, RECOMMENDED };
    struct driver *driver;
    CUmemAllocationProp wanted;
    int device;
    CUresult result = driver_get(&driver);
    if (result == CUDA_SUCCESS)
        result = check(driver, asked, &wanted, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || (option != MINIMUM && option != RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    *out = VIRTUAL_GRANULARITY;
    return CUDA_SUCCESS;
}

API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out,
                                                    CUmemGenericAllocationHandle handle)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    const struct physical *found = physical_find(driver, handle);
    bool memory = found != NULL && !found->multicast;
    if (memory)
        *out = found->properties;
    pthread_mutex_unlock(&driver->mutex);
    return memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
