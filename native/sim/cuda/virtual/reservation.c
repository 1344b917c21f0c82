/* cuMemAddressReserve: addresses without memory. */
#include "cuda/memory/addresses.h"
#include "cuda/virtual/virtual.h"
#include <stdlib.h>
#include <sys/mman.h>

const struct reservation *reservation_of(const struct driver *driver, CUdeviceptr address,
                                         uint64_t bytes)
{
    for (size_t i = 0; i < driver->reservations.count; i++) {
        const struct reservation *found = &driver->reservations.items[i];
        if (address >= found->start && address - found->start < found->bytes &&
            bytes <= found->bytes - (address - found->start))
            return found;
    }
    return NULL;
}

static bool make_room(struct reservations *all)
{
    if (all->count < all->capacity)
        return true;
    size_t capacity = all->capacity > 0 ? 2 * all->capacity : 16;
    struct reservation *items = realloc(all->items, capacity * sizeof *items);
    if (items == NULL)
        return false;
    all->items = items;
    all->capacity = capacity;
    return true;
}

/* Pages without access at a multiple of `alignment`, at `wish` if they are free. 0 if there are
 * none. */
static CUdeviceptr place(uint64_t bytes, uint64_t alignment, CUdeviceptr wish)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    uint64_t size;
    if (__builtin_add_overflow(bytes, alignment, &size))
        return 0;
    void *hint = (void *)(uintptr_t)wish;
    void *found = mmap(hint, size, PROT_NONE, flags, -1, 0);
    if (found == MAP_FAILED)
        return 0;
    CUdeviceptr base = (CUdeviceptr)(uintptr_t)found;
    CUdeviceptr start = (base + alignment - 1) / alignment * alignment;
    if (start > base)
        munmap(found, start - base);
    if (base + size > start + bytes)
        munmap((void *)(uintptr_t)(start + bytes), base + size - start - bytes);
    return start;
}

API CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr wish,
                                 unsigned long long flags)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || bytes == 0 || !virtual_aligned(bytes) || flags != 0 ||
        (alignment & (alignment - 1)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (alignment < VIRTUAL_GRANULARITY)
        alignment = VIRTUAL_GRANULARITY;
    pthread_mutex_lock(&driver->mutex);
    CUdeviceptr start = make_room(&driver->reservations) ? place(bytes, alignment, wish) : 0;
    if (start != 0) {
        struct reservations *all = &driver->reservations;
        all->items[all->count++] = (struct reservation){start, bytes};
        *out = start;
    }
    pthread_mutex_unlock(&driver->mutex);
    return start != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static bool mapped_anywhere(struct driver *driver, const struct reservation *within)
{
    for (size_t i = 0; i < driver->memory.count; i++)
        if (driver->memory.items[i].mapping != NULL &&
            driver->memory.items[i].start - within->start < within->bytes)
            return true;
    return false;
}

API CUresult cuMemAddressFree(CUdeviceptr start, size_t bytes)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    struct reservations *all = &driver->reservations;
    const struct reservation *found = reservation_of(driver, start, bytes);
    if (found != NULL && found->start == start && found->bytes == bytes &&
        !mapped_anywhere(driver, found)) {
        munmap((void *)(uintptr_t)start, bytes);
        all->items[found - all->items] = all->items[--all->count];
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&driver->mutex);
    return result;
}
