/* Default and current pools by location and type of memory (CUDA 13.0). Those of pinned memory on a
 * whole device are the device's; the others are made when they are first asked for. */
#include "cuda/memory/location.h"
#include "cuda/pool/pool.h"
#include <stdlib.h>

enum { PINNED = 1, MANAGED = 2 };

struct pool_place {
    struct pool_place *next;
    struct pool *standard;
    struct pool *current;
};

/* Where a default pool would be: `like` it. */
static CUresult described(const struct driver *driver, const CUmemLocation *location, int type,
                          struct pool *like)
{
    if (location == NULL || !driver_knows(driver, CUDA_13_0))
        return CUDA_ERROR_INVALID_VALUE;
    *like = (struct pool){
        .location = *location, .managed = type == MANAGED, .standard = true, .file = -1};
    if (type == MANAGED)
        return pool_managed_place(driver, &like->location, &like->device);
    return type == PINNED ? location_resolve(driver, &like->location, &like->device)
                          : CUDA_ERROR_INVALID_VALUE;
}

static bool alike(const struct pool *one, const struct pool *other)
{
    return one->managed == other->managed && one->location.type == other->location.type &&
           one->location.id == other->location.id;
}

static struct pool_place *find(const struct driver *driver, const struct pool *like)
{
    struct pool_place *place = driver->pool_places;
    while (place != NULL && !alike(place->standard, like))
        place = place->next;
    return place;
}

static CUresult add(struct driver *driver, struct pool like, struct pool_place **out)
{
    struct pool_place *place = calloc(1, sizeof *place);
    if (place == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = pool_make(driver, like, &place->standard);
    if (result != CUDA_SUCCESS) {
        free(place);
        return result;
    }
    place->current = place->standard;
    place->next = driver->pool_places;
    driver->pool_places = place;
    *out = place;
    return CUDA_SUCCESS;
}

/* The places of the default and the current pool. */
static CUresult places(struct driver *driver, const CUmemLocation *location, int type,
                       struct pool **standard, struct pool ***current)
{
    struct pool like;
    CUresult result = described(driver, location, type, &like);
    if (result != CUDA_SUCCESS)
        return result;
    if (like.location.type == LOCATION_DEVICE && !like.managed) {
        *standard = &driver->default_pools[like.device];
        *current = &driver->pools[like.device];
        return CUDA_SUCCESS;
    }
    struct pool_place *place = find(driver, &like);
    if (place == NULL)
        result = add(driver, like, &place);
    if (result != CUDA_SUCCESS)
        return result;
    *standard = place->standard;
    *current = &place->current;
    return CUDA_SUCCESS;
}

enum which { DEFAULT, CURRENT };

static CUresult get(CUmemoryPool *out, const CUmemLocation *location, int type, enum which which)
{
    struct driver *driver;
    struct pool *standard, **current;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    result = places(driver, location, type, &standard, &current);
    if (result == CUDA_SUCCESS)
        *out = which == DEFAULT ? standard : *current;
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

API CUresult cuMemGetDefaultMemPool(CUmemoryPool *out, CUmemLocation *location, int type)
{
    return get(out, location, type, DEFAULT);
}

API CUresult cuMemGetMemPool(CUmemoryPool *out, CUmemLocation *location, int type)
{
    return get(out, location, type, CURRENT);
}

API CUresult cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool pool)
{
    struct driver *driver;
    struct pool *standard, **current;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver->mutex);
    result = places(driver, location, type, &standard, &current);
    if (result == CUDA_SUCCESS && (!is_pool(pool) || pool->imported || !alike(pool, standard)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *current = pool;
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

void pool_replace_by_default(struct driver *driver, const struct pool *gone)
{
    for (unsigned device = 0; device < driver->device_count; device++)
        if (driver->pools[device] == gone)
            driver->pools[device] = &driver->default_pools[device];
    for (struct pool_place *place = driver->pool_places; place != NULL; place = place->next)
        if (place->current == gone)
            place->current = place->standard;
}
