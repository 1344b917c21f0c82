/* What a device pointer is. */
#include "cuda/addresses.h"
#include "cuda/virtual.h"

enum attribute {
    CONTEXT_OF = 1,
    MEMORY_TYPE = 2,
    DEVICE_POINTER = 3,
    HOST_POINTER = 4,
    BUFFER_NUMBER = 7,
    IS_MANAGED = 8,
    DEVICE_ORDINAL = 9,
    RANGE_START = 11,
    RANGE_SIZE = 12,
    MAPPED = 13,
};

enum { TYPE_DEVICE = 2 };

static int device_of(const struct allocation *found)
{
    return found->mapping != NULL ? found->mapping->physical->device : allocation_device(found);
}

static CUresult value_of(const struct allocation *found, CUdeviceptr address, int attribute,
                         void *out)
{
    switch (attribute) {
    case CONTEXT_OF:
        *(CUcontext *)out = found->context;
        return CUDA_SUCCESS;
    case MEMORY_TYPE:
        *(unsigned *)out = TYPE_DEVICE;
        return CUDA_SUCCESS;
    case DEVICE_POINTER:
        *(CUdeviceptr *)out = address;
        return CUDA_SUCCESS;
    case HOST_POINTER:
        *(void **)out = found->managed ? (void *)(uintptr_t)address : NULL;
        return found->managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case BUFFER_NUMBER:
        *(unsigned long long *)out = found->number;
        return CUDA_SUCCESS;
    case IS_MANAGED:
        *(unsigned *)out = found->managed;
        return CUDA_SUCCESS;
    case DEVICE_ORDINAL:
        *(int *)out = device_of(found);
        return CUDA_SUCCESS;
    case RANGE_START:
        *(CUdeviceptr *)out = found->start;
        return CUDA_SUCCESS;
    case RANGE_SIZE:
        *(size_t *)out = found->bytes;
        return CUDA_SUCCESS;
    case MAPPED:
        *(unsigned *)out = 1;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

API CUresult cuPointerGetAttribute(void *out, int attribute, CUdeviceptr address)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    const struct allocation *found = addresses_find(&driver->memory, address);
    result = found != NULL ? value_of(found, address, attribute, out) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&driver->mutex);
    return result;
}
