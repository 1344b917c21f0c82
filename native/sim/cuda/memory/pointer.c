/* What a pointer of the program is: to device memory, to pinned memory of the host, to addresses
 * that are reserved, or to nothing that the driver knows. */
#include "cuda/ipc/ipc.h"
#include "cuda/memory/addresses.h"
#include "cuda/memory/location.h"
#include "cuda/stream/queue.h"
#include "cuda/virtual/virtual.h"
#include <string.h>

enum attribute {
    CONTEXT_OF = 1,
    MEMORY_TYPE = 2,
    DEVICE_POINTER = 3,
    HOST_POINTER = 4,
    P2P_TOKENS = 5,
    SYNC_MEMOPS = 6,
    BUFFER_NUMBER = 7,
    IS_MANAGED = 8,
    DEVICE_ORDINAL = 9,
    IS_LEGACY_IPC_CAPABLE = 10,
    RANGE_START = 11,
    RANGE_SIZE = 12,
    MAPPED = 13,
    ALLOWED_HANDLE_TYPES = 14,
    IS_RDMA_CAPABLE = 15,
    ACCESS_FLAGS = 16,
    POOL_HANDLE = 17,
    MAPPING_SIZE = 18,
    MAPPING_START = 19,
    MEMORY_BLOCK = 20,
    IS_DECOMPRESS_CAPABLE = 21, /* since CUDA 12.8 */
    DOMAIN_ORDINAL = 22,        /* since 13.4 */
};

enum { TYPE_HOST = 1, TYPE_DEVICE = 2, NO_DEVICE_ORDINAL = -2, READ_WRITE_ACCESS = 3 };
enum { CUDA_12_8 = 12080 };

/* Of one pointer: a copy of what it is in, and what its value is written to. */
struct question {
    const struct driver *driver;
    const struct context *current;
    CUdeviceptr address;
    const struct allocation *found; /* NULL: addresses that are reserved, or nothing */
    const struct reservation *reserved;
};

static bool known(const struct driver *driver, int attribute)
{
    int since = attribute == IS_DECOMPRESS_CAPABLE ? CUDA_12_8
                : attribute == DOMAIN_ORDINAL      ? CUDA_13_4
                                                   : 0;
    return attribute >= CONTEXT_OF && attribute <= DOMAIN_ORDINAL && driver_knows(driver, since);
}

static int device_of(const struct allocation *found)
{
    return found->mapping != NULL ? found->mapping->physical->device : allocation_device(found);
}

/* Does the program's own code reach it? */
static bool is_host_memory(const struct allocation *found)
{
    return found->host || (device_of(found) < 0 && !found->managed);
}

static const CUmemLocation *location_of(const struct allocation *found)
{
    if (found->mapping != NULL)
        return &found->mapping->physical->properties.location;
    return found->pool != NULL ? &found->pool->location : NULL;
}

static int handle_types(const struct allocation *found)
{
    if (found->mapping != NULL)
        return found->mapping->physical->properties.requestedHandleTypes;
    bool exported = found->pool != NULL && found->pool->file >= 0 && !found->pool->imported;
    return exported ? FILE_DESCRIPTOR : 0;
}

/* What the current context's device may do with it. */
static int access_of(const struct question *asked)
{
    const struct allocation *found = asked->found;
    int device = asked->current->device;
    if (found->mapping != NULL)
        return found->mapping->access[device];
    if (found->pool != NULL && !found->managed)
        return found->pool->access[device];
    return is_host_memory(found) || found->managed || device_of(found) == device ? READ_WRITE_ACCESS
                                                                                 : 0;
}

/* How many bytes an attribute has; 0 where nothing can be asked with others. */
static size_t size_of(int attribute)
{
    switch (attribute) {
    case CONTEXT_OF:
    case DEVICE_POINTER:
    case HOST_POINTER:
    case BUFFER_NUMBER:
    case RANGE_START:
    case RANGE_SIZE:
    case POOL_HANDLE:
    case MAPPING_SIZE:
    case MAPPING_START:
    case MEMORY_BLOCK:
        return sizeof(uint64_t);
    case P2P_TOKENS:
        return 0;
    default:
        return sizeof(int);
    }
}

/* Everything below is written through this: as wide as the attribute is. */
static CUresult answer(void *out, int attribute, uint64_t value)
{
    int narrow = (int)value;
    bool wide = size_of(attribute) == sizeof value;
    memcpy(out, wide ? (const void *)&value : (const void *)&narrow, size_of(attribute));
    return CUDA_SUCCESS;
}

/* Of addresses that are reserved; with nothing mapped there, no more can be said. */
static CUresult of_range(const struct question *asked, int attribute, void *out)
{
    const struct reservation *reserved = asked->reserved;
    switch (attribute) {
    case RANGE_START:
        return answer(out, attribute, reserved != NULL ? reserved->start : asked->found->start);
    case RANGE_SIZE:
        return answer(out, attribute, reserved != NULL ? reserved->bytes : asked->found->bytes);
    case MAPPED:
        return answer(out, attribute, asked->found != NULL);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult of_allocation(const struct question *asked, int attribute, void *out)
{
    const struct allocation *found = asked->found;
    const CUmemLocation *location = location_of(found);
    switch (attribute) {
    case CONTEXT_OF:
        return answer(out, attribute, (uintptr_t)found->context);
    case MEMORY_TYPE:
        return answer(out, attribute, is_host_memory(found) ? TYPE_HOST : TYPE_DEVICE);
    case DEVICE_POINTER:
        return answer(out, attribute, asked->address);
    case HOST_POINTER:
        return is_host_memory(found) || found->managed ? answer(out, attribute, asked->address)
                                                       : CUDA_ERROR_INVALID_VALUE;
    case SYNC_MEMOPS:
        return answer(out, attribute, found->sync_memops);
    case BUFFER_NUMBER:
        return answer(out, attribute, found->number);
    case IS_MANAGED:
        return answer(out, attribute, found->managed);
    case DEVICE_ORDINAL:
        return answer(out, attribute,
                      (uint64_t)(device_of(found) < 0 ? NO_DEVICE_ORDINAL : device_of(found)));
    case IS_LEGACY_IPC_CAPABLE:
        return answer(out, attribute, ipc_capable(found));
    case ALLOWED_HANDLE_TYPES:
        return answer(out, attribute, (uint64_t)handle_types(found));
    case ACCESS_FLAGS:
        return asked->current != NULL ? answer(out, attribute, (uint64_t)access_of(asked))
                                      : CUDA_ERROR_INVALID_CONTEXT;
    case POOL_HANDLE:
        return answer(out, attribute, (uintptr_t)found->pool);
    case MAPPING_SIZE:
        return answer(out, attribute, found->bytes);
    case MAPPING_START:
        return answer(out, attribute, found->start);
    case MEMORY_BLOCK:
        return answer(out, attribute,
                      found->mapping != NULL ? found->mapping->physical->number : found->number);
    case IS_RDMA_CAPABLE:
    case IS_DECOMPRESS_CAPABLE:
        return answer(out, attribute, 0);
    case DOMAIN_ORDINAL:
        return answer(out, attribute,
                      (uint64_t)(location != NULL ? location_domain(location) : -1));
    default:
        return of_range(asked, attribute, out);
    }
}

/* driver->mutex is held for as long as the question is asked. */
static struct question about(struct driver *driver, CUdeviceptr address)
{
    struct question asked = {.driver = driver,
                             .current = context_current(driver),
                             .address = address,
                             .found = addresses_find(&driver->memory, address)};
    if (asked.found == NULL)
        asked.found = addresses_find(&driver->host_memory, address);
    if (asked.found == NULL || asked.found->mapping != NULL)
        asked.reserved = reservation_of(driver, address, 1);
    return asked;
}

static CUresult value_of(const struct question *asked, int attribute, void *out)
{
    if (asked->found != NULL)
        return of_allocation(asked, attribute, out);
    return asked->reserved != NULL ? of_range(asked, attribute, out) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuPointerGetAttribute(void *out, int attribute, CUdeviceptr address)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || !known(driver, attribute))
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == P2P_TOKENS)
        return CUDA_ERROR_NOT_SUPPORTED; /* no kernel module could use them */
    pthread_mutex_lock(&driver->mutex);
    struct question asked = about(driver, address);
    result = value_of(&asked, attribute, out);
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

static void answer_nothing(int attribute, void *out)
{
    int none = attribute == DEVICE_ORDINAL   ? NO_DEVICE_ORDINAL
               : attribute == DOMAIN_ORDINAL ? -1
                                             : 0;
    answer(out, attribute, (uint64_t)none);
}

static bool can_be_asked(const struct driver *driver, unsigned count, const int *attributes,
                         void *const *out)
{
    if (attributes == NULL || out == NULL)
        return false;
    for (unsigned i = 0; i < count; i++)
        if (!known(driver, attributes[i]) || size_of(attributes[i]) == 0 || out[i] == NULL)
            return false;
    return true;
}

/* What does not hold of the pointer is answered with nothing, and no error. */
API CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **out,
                                    CUdeviceptr address)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (!can_be_asked(driver, count, attributes, out))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    struct question asked = about(driver, address);
    for (unsigned i = 0; i < count; i++)
        if (value_of(&asked, attributes[i], out[i]) != CUDA_SUCCESS)
            answer_nothing(attributes[i], out[i]);
    pthread_mutex_unlock(&driver->mutex);
    return CUDA_SUCCESS;
}

/* Operations on the memory that are queued are waited for, as the interface says. */
API CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (value == NULL || attribute != SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    bool wanted = *(const unsigned *)value != 0;
    pthread_mutex_lock(&driver->mutex);
    struct allocation *found = addresses_find(&driver->memory, address);
    int device = found != NULL ? device_of(found) : -1;
    if (found != NULL)
        found->sync_memops = wanted;
    pthread_mutex_unlock(&driver->mutex);
    if (found == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return device >= 0 && wanted ? queue_finish(driver, device) : CUDA_SUCCESS;
}
