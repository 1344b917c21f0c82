/* Multicast objects: one range of addresses for memory on several devices. The object takes no
 * device memory; what is bound to it stays while it is bound. */
#include "cuda/virtual/virtual.h"
#include <stdlib.h>

static CUresult check(const CUmulticastObjectProp *wanted, const struct driver *driver)
{
    if (wanted == NULL || wanted->numDevices == 0 || wanted->numDevices > driver->device_count ||
        wanted->flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return (wanted->handleTypes & ~(unsigned long long)FILE_DESCRIPTOR) == 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_SUPPORTED;
}

static bool supported(const struct driver *driver, int device)
{
    return driver->state->machine.gpus[driver->gpus[device]].capability_major >= 9;
}

static bool any_supported(const struct driver *driver)
{
    for (unsigned device = 0; device < driver->device_count; device++)
        if (supported(driver, (int)device))
            return true;
    return false;
}

API CUresult cuMulticastGetGranularity(size_t *out, const CUmulticastObjectProp *wanted, int option)
{
    enum { MINIMUM, RECOMMENDED };
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result == CUDA_SUCCESS)
        result = check(wanted, driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || (option != MINIMUM && option != RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    *out = VIRTUAL_GRANULARITY;
    return CUDA_SUCCESS;
}

API CUresult cuMulticastCreate(CUmemGenericAllocationHandle *out,
                               const CUmulticastObjectProp *wanted)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result == CUDA_SUCCESS)
        result = any_supported(driver) ? check(wanted, driver) : CUDA_ERROR_NOT_SUPPORTED;
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || wanted->size == 0 || !virtual_aligned(wanted->size))
        return CUDA_ERROR_INVALID_VALUE;
    struct physical *object = calloc(1, sizeof *object);
    if (object == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *object = (struct physical){.device = ON_HOST,
                                .bytes = wanted->size,
                                .file = NO_FILE,
                                .multicast = true,
                                .team_size = wanted->numDevices};
    object->properties.requestedHandleTypes = (int)wanted->handleTypes;
    pthread_mutex_lock(&driver->mutex);
    bool entered = physical_enter(driver, object) == 0;
    if (entered)
        *out = object->handle;
    pthread_mutex_unlock(&driver->mutex);
    if (!entered)
        free(object);
    return entered ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static struct physical *object_of(const struct driver *driver, CUmemGenericAllocationHandle handle)
{
    struct physical *found = physical_find(driver, handle);
    return found != NULL && found->multicast ? found : NULL;
}

API CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device)
{
    struct driver *driver;
    const struct sim_gpu *gpu;
    CUresult result = driver_device(device, &driver, &gpu);
    if (result != CUDA_SUCCESS)
        return result;
    if (!supported(driver, device))
        return CUDA_ERROR_NOT_SUPPORTED;
    pthread_mutex_lock(&driver->mutex);
    struct physical *object = object_of(driver, handle);
    bool joined = object != NULL && (object->team >> device & 1) == 0 &&
                  (unsigned)__builtin_popcount(object->team) < object->team_size;
    if (joined)
        object->team |= UINT32_C(1) << device;
    pthread_mutex_unlock(&driver->mutex);
    return joined ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool within(uint64_t offset, uint64_t bytes, uint64_t all)
{
    return offset <= all && bytes <= all - offset;
}

/* Is something on that device bound there already? */
static bool occupied(const struct physical *object, int device, uint64_t offset, uint64_t bytes)
{
    for (const struct binding *at = object->bindings; at != NULL; at = at->next)
        if (at->memory->device == device && at->offset < offset + bytes &&
            offset < at->offset + at->bytes)
            return true;
    return false;
}

enum { ANY_DEVICE = -1 }; /* whichever the memory is on */

static CUresult bind(struct physical *object, int device, struct physical *memory, uint64_t offset,
                     uint64_t memory_offset, uint64_t bytes)
{
    if (object == NULL || memory == NULL || memory->multicast || memory->device == ON_HOST ||
        (device != ANY_DEVICE && device != memory->device) ||
        (object->team >> memory->device & 1) == 0 || bytes == 0 ||
        !virtual_aligned(offset | memory_offset | bytes) || !within(offset, bytes, object->bytes) ||
        !within(memory_offset, bytes, memory->bytes) ||
        occupied(object, memory->device, offset, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct binding *binding = malloc(sizeof *binding);
    if (binding == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *binding = (struct binding){object->bindings, offset, bytes, memory};
    object->bindings = binding;
    memory->references++;
    return CUDA_SUCCESS;
}

static CUresult bind_memory(CUmemGenericAllocationHandle handle, int device, size_t offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                            unsigned long long flags)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    result = bind(object_of(driver, handle), device, physical_find(driver, memory), offset,
                  memory_offset, bytes);
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

API CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset,
                                CUmemGenericAllocationHandle memory, size_t memory_offset,
                                size_t bytes, unsigned long long flags)
{
    return bind_memory(handle, ANY_DEVICE, offset, memory, memory_offset, bytes, flags);
}

API CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle handle, CUdevice device,
                                   size_t offset, CUmemGenericAllocationHandle memory,
                                   size_t memory_offset, size_t bytes, unsigned long long flags)
{
    return device < 0 ? CUDA_ERROR_INVALID_VALUE
                      : bind_memory(handle, device, offset, memory, memory_offset, bytes, flags);
}

static CUresult bind_address(CUmemGenericAllocationHandle handle, int device, size_t offset,
                             CUdeviceptr address, size_t bytes, unsigned long long flags)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    const struct allocation *item = flags == 0 ? mapping_at(driver, address) : NULL;
    if (item != NULL && within(address - item->start, bytes, item->bytes))
        result = bind(object_of(driver, handle), device, item->mapping->physical, offset,
                      item->mapping->offset + (address - item->start), bytes);
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

API CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset,
                                 CUdeviceptr address, size_t bytes, unsigned long long flags)
{
    return bind_address(handle, ANY_DEVICE, offset, address, bytes, flags);
}

API CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle handle, CUdevice device,
                                    size_t offset, CUdeviceptr address, size_t bytes,
                                    unsigned long long flags)
{
    return device < 0 ? CUDA_ERROR_INVALID_VALUE
                      : bind_address(handle, device, offset, address, bytes, flags);
}

static struct binding **binding_of(struct physical *object, int device, uint64_t offset,
                                   uint64_t bytes)
{
    for (struct binding **at = &object->bindings; *at != NULL; at = &(*at)->next)
        if ((*at)->memory->device == device && (*at)->offset == offset && (*at)->bytes == bytes)
            return at;
    return NULL;
}

API CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset,
                               size_t bytes)
{
    struct driver *driver;
    const struct sim_gpu *gpu;
    CUresult result = driver_device(device, &driver, &gpu);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver->mutex);
    struct physical *object = object_of(driver, handle);
    struct binding **found = object != NULL ? binding_of(object, device, offset, bytes) : NULL;
    if (found != NULL)
        physical_unbind(driver, found);
    pthread_mutex_unlock(&driver->mutex);
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
