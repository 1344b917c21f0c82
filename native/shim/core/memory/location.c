#include "core/memory/location.h"

#include "cuda_types.h"

/* In CUmemLocation the device of a locality domain is one byte, before that of the domain. */
enum { DOMAIN_DEVICE = 0xff };

static struct location on_device(int ordinal)
{
    return (struct location){.payer = PAYER_DEVICE, .ordinal = ordinal};
}

/* Of pinned memory. Managed memory has no location but a device that it prefers. */
static struct location at(int type, int id)
{
    switch (type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return on_device(id);
    case CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN:
        return on_device(id & DOMAIN_DEVICE);
    case CU_MEM_LOCATION_TYPE_NONE:
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return (struct location){.payer = PAYER_NOBODY};
    default:
        return (struct location){.payer = PAYER_CURRENT, .unknown = true};
    }
}

struct location location_of(int allocation, int type, int id)
{
    struct location location = at(type, id);
    switch (allocation) {
    case CU_MEM_ALLOCATION_TYPE_INVALID:
    case CU_MEM_ALLOCATION_TYPE_PINNED:
        return location;
    case CU_MEM_ALLOCATION_TYPE_MANAGED:
        location.managed = true;
        break;
    default:
        location.unknown = true;
    }
    if (location.payer == PAYER_NOBODY)
        location.payer = PAYER_CURRENT;
    return location;
}
