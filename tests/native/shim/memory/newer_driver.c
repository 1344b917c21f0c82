/* Locations and types of allocation that the simulated driver does not know, in front of it: those
 * of CUDA 13.4, and one of no driver (77) that a newer one may have.
 *
 * All of it is device memory in the end, of the device that the location names, or device 0.
 */
#include "cuda_types.h"

#include <dlfcn.h>

enum { FUTURE = 77 };

extern CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs,
                                       size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params);

#define NEXT(function) ((__typeof__(&function))dlsym(RTLD_NEXT, #function))

static int last_location;    /* of a node that allocates */
static CUmemoryPool managed; /* the last pool that is, whose pages come when they are touched */

static CUmemLocation known(int allocation, CUmemLocation location)
{
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN)
        return (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, location.id & 0xff};
    if (location.type == FUTURE || allocation != CU_MEM_ALLOCATION_TYPE_PINNED)
        return (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 0};
    return location;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags)
{
    CUmemAllocationProp asked = *properties;
    asked.location = known(properties->type, properties->location);
    asked.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    return NEXT(cuMemCreate)(handle, bytes, &asked, flags);
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    CUmemPoolProps asked = *properties;
    asked.location = known(properties->allocType, properties->location);
    asked.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    CUresult result = NEXT(cuMemPoolCreate)(pool, &asked);
    if (result == CUDA_SUCCESS && properties->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED)
        managed = *pool;
    return result;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    CUresult result = NEXT(cuMemPoolGetAttribute)(pool, attribute, value);
    if (pool == managed && attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
        *(cuuint64_t *)value = 0;
    return result;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    CUmemLocation asked = params->poolProps.location;
    params->poolProps.location = known(params->poolProps.allocType, asked);
    CUresult result = NEXT(cuGraphAddMemAllocNode)(node, graph, needs, count, params);
    params->poolProps.location = asked;
    last_location = asked.type;
    return result;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    CUresult result = NEXT(cuGraphMemAllocNodeGetParams)(node, params);
    params->poolProps.location.type = last_location;
    return result;
}
