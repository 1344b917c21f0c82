/* CUDA 13's ways to get at pools, before the simulated driver of CUDA 12 (overlaid_driver.py).
 *
 * The host has one pool. What a pool is asked for its place, a driver knows from 13.2 on: if told.
 */
#include "cuda_types.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

bool tells_places;

typedef CUresult (*get_pool)(CUmemoryPool *pool, CUdevice device);

static void *find(const char *name)
{
    return dlsym(dlopen(SIMULATED, RTLD_NOW), name);
}

static CUmemoryPool host_pool(void)
{
    static CUmemoryPool pool;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA};
    CUresult (*create)(CUmemoryPool *, const CUmemPoolProps *) = find("cuMemPoolCreate");
    if (pool == NULL)
        create(&pool, &properties);
    return pool;
}

static CUresult pool_at(CUmemoryPool *pool, const CUmemLocation *location, int type,
                        const char *of_device)
{
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE ||
        location->type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN)
        return ((get_pool)find(of_device))(pool, location->id & 0xff);
    if (location->type != CU_MEM_LOCATION_TYPE_HOST &&
        location->type != CU_MEM_LOCATION_TYPE_HOST_NUMA)
        return CUDA_ERROR_INVALID_VALUE;
    *pool = host_pool();
    return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, int type)
{
    return pool_at(pool, location, type, "cuDeviceGetDefaultMemPool");
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, int type)
{
    return pool_at(pool, location, type, "cuDeviceGetMemPool");
}

static CUresult tell_place(CUmemoryPool pool, int attribute, int *value)
{
    CUmemoryPool current = NULL;
    int device = 0;
    while (pool != host_pool() && pool != current)
        if (((get_pool)find("cuDeviceGetMemPool"))(&current, device++) != CUDA_SUCCESS)
            return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_MEMPOOL_ATTR_LOCATION_TYPE)
        *value = device == 0 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
    else if (attribute == CU_MEMPOOL_ATTR_LOCATION_ID)
        *value = device == 0 ? 0 : device - 1;
    else
        *value = CU_MEM_ALLOCATION_TYPE_PINNED;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    CUresult (*get)(CUmemoryPool, int, void *) = find("cuMemPoolGetAttribute");
    bool newer = attribute == CU_MEMPOOL_ATTR_LOCATION_TYPE ||
                 attribute == CU_MEMPOOL_ATTR_LOCATION_ID ||
                 attribute == CU_MEMPOOL_ATTR_ALLOCATION_TYPE;
    return tells_places && newer ? tell_place(pool, attribute, value) : get(pool, attribute, value);
}
