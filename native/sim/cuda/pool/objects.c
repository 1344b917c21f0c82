/* Pools as the program has them: found, made, destroyed, and what can be asked and set. */
#include "cuda/capture/capture.h"
#include "cuda/memory/location.h"
#include "cuda/pool/pool.h"
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum attribute {
    FIRST_POLICY = 1,
    RELEASE_THRESHOLD = 4,
    RESERVED_CURRENT = 5,
    RESERVED_HIGH = 6,
    USED_CURRENT = 7,
    USED_HIGH = 8,
    ALLOCATION_TYPE = 9, /* from here on since CUDA 13.2 */
    EXPORT_HANDLE_TYPES = 10,
    LOCATION_ID = 11,
    LOCATION_TYPE = 12,
    MAX_POOL_SIZE = 13,
    HW_DECOMPRESS = 14,
    LOCALITY_DOMAIN = 15, /* since 13.4 */
};

enum { PINNED = 1, MANAGED = 2, POSIX_FILE = 1, NO_ACCESS = 0, READ_WRITE = 3 };

static CUresult pool_of(CUdevice device, struct pool **out, bool standard)
{
    struct driver *driver;
    const struct sim_gpu *gpu;
    CUresult result = driver_device(device, &driver, &gpu);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = standard ? &driver->default_pools[device] : driver->pools[device];
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice device)
{
    return pool_of(device, out, true);
}

API CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device)
{
    return pool_of(device, out, false);
}

API CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    struct driver *driver;
    const struct sim_gpu *gpu;
    CUresult result = driver_device(device, &driver, &gpu);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_pool(pool) || pool->location.type != LOCATION_DEVICE || pool->device != device ||
        pool->managed || pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    driver->pools[device] = pool;
    return CUDA_SUCCESS;
}

static bool all_managed(const struct driver *driver)
{
    for (unsigned device = 0; device < driver->device_count; device++)
        if (!concurrent_managed(&driver->state->machine.gpus[driver->gpus[device]]))
            return false;
    return true;
}

CUresult pool_make(struct driver *driver, struct pool like, struct pool **out)
{
    struct pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pool = like;
    pool->kind = POOL;
    pool_enter(driver, pool);
    *out = pool;
    return CUDA_SUCCESS;
}

static CUresult make(struct driver *driver, const CUmemPoolProps *wanted, struct pool like,
                     CUmemoryPool *out)
{
    if (wanted->handleTypes == POSIX_FILE) {
        like.file = (int)syscall(SYS_memfd_create, "pool", 1U /* close on exec */);
        if (like.file < 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uint64_t units = wanted->maxSize / POOL_GRANULARITY;
    units += wanted->maxSize % POOL_GRANULARITY > 0;
    like.max_size = units * POOL_GRANULARITY;
    pthread_mutex_lock(&driver->mutex);
    CUresult result = pool_make(driver, like, out);
    pthread_mutex_unlock(&driver->mutex);
    if (result != CUDA_SUCCESS && like.file >= 0)
        close(like.file);
    return result;
}

static CUresult make_pinned(struct driver *driver, const CUmemPoolProps *wanted, CUmemoryPool *out)
{
    struct pool like = {.location = wanted->location, .file = -1};
    CUresult result = location_resolve(driver, &like.location, &like.device);
    if (result != CUDA_SUCCESS)
        return result;
    if (like.location.type == LOCATION_HOST && wanted->handleTypes != 0)
        return CUDA_ERROR_INVALID_VALUE; /* such memory cannot be exported */
    if (wanted->handleTypes != 0 && wanted->handleTypes != POSIX_FILE)
        return CUDA_ERROR_NOT_SUPPORTED; /* of other systems, or of a fabric */
    return make(driver, wanted, like, out);
}

CUresult pool_managed_place(const struct driver *driver, CUmemLocation *location, int *device)
{
    *device = -1;
    if (location->type == LOCATION_DOMAIN)
        return CUDA_ERROR_INVALID_VALUE;
    if (!all_managed(driver))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (location->type != LOCATION_NONE)
        return location_resolve(driver, location, device);
    location->id = 0; /* ignored */
    return CUDA_SUCCESS;
}

static CUresult make_managed(struct driver *driver, const CUmemPoolProps *wanted, CUmemoryPool *out)
{
    struct pool like = {.location = wanted->location, .managed = true, .file = -1};
    if (wanted->handleTypes != 0 || wanted->maxSize != 0 || wanted->usage != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = pool_managed_place(driver, &like.location, &like.device);
    return result == CUDA_SUCCESS ? make(driver, wanted, like, out) : result;
}

API CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *wanted)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || wanted == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (wanted->allocType == MANAGED && driver_knows(driver, CUDA_13_0))
        return make_managed(driver, wanted, out);
    return wanted->allocType == PINNED ? make_pinned(driver, wanted, out)
                                       : CUDA_ERROR_INVALID_VALUE;
}

/* It lives on, without its handle, until what was allocated from it is freed. */
API CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_pool(pool) || pool->standard)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    pool_replace_by_default(driver, pool);
    pool->kind = NO_OBJECT;
    pool_end_if_unused(driver, pool);
    pthread_mutex_unlock(&driver->mutex);
    return CUDA_SUCCESS;
}

/* The attributes of 64 bits. */
static uint64_t *figure_of(struct pool *pool, int attribute)
{
    switch (attribute) {
    case RELEASE_THRESHOLD:
        return &pool->release_threshold;
    case RESERVED_CURRENT:
        return &pool->reserved;
    case RESERVED_HIGH:
        return &pool->reserved_high;
    case USED_CURRENT:
        return &pool->used;
    case USED_HIGH:
        return &pool->used_high;
    default:
        return NULL;
    }
}

static bool is_policy(int attribute)
{
    return attribute >= FIRST_POLICY && attribute < RELEASE_THRESHOLD;
}

/* A valid pool and a place for the value, or what is wrong. */
static CUresult checked(struct driver **driver, const struct pool *pool, const void *value)
{
    CUresult result = driver_get(driver);
    if (result != CUDA_SUCCESS)
        return result;
    return is_pool(pool) && value != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The same of a call that captures forbid. */
static CUresult checked_unsafe(struct driver **driver, const struct pool *pool, const void *value)
{
    CUresult result = checked(driver, pool, value);
    return result == CUDA_SUCCESS ? capture_unsafe(*driver) : result;
}

/* What was fixed when the pool was made, and is an int. */
static CUresult property_of(const struct driver *driver, const struct pool *pool, int attribute,
                            int *out)
{
    int domain = location_domain(&pool->location);
    if (!driver_knows(driver, attribute == LOCALITY_DOMAIN ? CUDA_13_4 : CUDA_13_2))
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case ALLOCATION_TYPE:
        *out = pool->managed ? MANAGED : PINNED;
        return CUDA_SUCCESS;
    case EXPORT_HANDLE_TYPES:
        *out = pool->file >= 0 && !pool->imported ? POSIX_FILE : 0;
        return CUDA_SUCCESS;
    case LOCATION_ID:
        *out = domain >= 0 ? pool->device : pool->location.id;
        return CUDA_SUCCESS;
    case LOCATION_TYPE:
        *out = pool->location.type;
        return CUDA_SUCCESS;
    case HW_DECOMPRESS:
        *out = 0;
        return CUDA_SUCCESS;
    case LOCALITY_DOMAIN:
        *out = domain;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    struct driver *driver;
    CUresult result = checked_unsafe(&driver, pool, value);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t *figure = figure_of(pool, attribute);
    if (attribute == MAX_POOL_SIZE && driver_knows(driver, CUDA_13_2))
        figure = &pool->max_size;
    if (figure == NULL && !is_policy(attribute))
        return property_of(driver, pool, attribute, value);
    pthread_mutex_lock(&driver->mutex);
    if (figure != NULL)
        *(uint64_t *)value = *figure;
    else
        *(int *)value = !pool->forbidden[attribute - FIRST_POLICY];
    pthread_mutex_unlock(&driver->mutex);
    return CUDA_SUCCESS;
}

static CUresult set(struct pool *pool, int attribute, const void *value)
{
    if (is_policy(attribute)) {
        pool->forbidden[attribute - FIRST_POLICY] = *(const int *)value == 0;
        return CUDA_SUCCESS;
    }
    if (attribute == RELEASE_THRESHOLD) {
        pool->release_threshold = *(const uint64_t *)value;
        return CUDA_SUCCESS;
    }
    if ((attribute != RESERVED_HIGH && attribute != USED_HIGH) || *(const uint64_t *)value != 0)
        return CUDA_ERROR_INVALID_VALUE; /* a high mark can only be set to 0: to what is now */
    if (attribute == RESERVED_HIGH)
        pool->reserved_high = pool->reserved;
    else
        pool->used_high = pool->used;
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    struct driver *driver;
    CUresult result = checked_unsafe(&driver, pool, value);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver->mutex);
    result = set(pool, attribute, value);
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    struct driver *driver;
    CUresult result = checked_unsafe(&driver, pool, pool);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver->mutex);
    pool_trim(driver, pool, keep);
    pthread_mutex_unlock(&driver->mutex);
    return CUDA_SUCCESS;
}

static CUresult permit(const struct driver *driver, struct pool *pool, const CUmemAccessDesc *asked)
{
    int device = asked->location.id;
    if (asked->location.type != LOCATION_DEVICE || device < 0 ||
        (unsigned)device >= driver->device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    if (asked->flags != NO_ACCESS && asked->flags != READ_WRITE)
        return CUDA_ERROR_INVALID_VALUE;
    if (device == pool->device && asked->flags == NO_ACCESS)
        return CUDA_ERROR_INVALID_DEVICE; /* its own cannot be shut out */
    pool->access[device] = asked->flags;
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *asked, size_t count)
{
    struct driver *driver;
    CUresult result = checked(&driver, pool, asked);
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
        result = permit(driver, pool, &asked[i]);
    return result;
}

API CUresult cuMemPoolGetAccess(int *flags, CUmemoryPool pool, CUmemLocation *location)
{
    struct driver *driver;
    CUresult result = checked(&driver, pool, flags);
    if (result != CUDA_SUCCESS)
        return result;
    if (location == NULL || location->type != LOCATION_DEVICE || location->id < 0 ||
        (unsigned)location->id >= driver->device_count)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = pool->access[location->id];
    return CUDA_SUCCESS;
}
