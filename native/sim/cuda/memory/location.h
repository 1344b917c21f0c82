/* Where memory is to be, as a program says it and as this version of the driver knows it.
 *
 * A locality domain (CUDA 13.4) is a part of a device's memory. A device that has one domain is
 * that domain: memory asked for there is the device's and says so. GPUs of compute capability 10
 * and more are given two domains, all others one; which real ones have more is not documented.
 */
#ifndef SIM_CUDA_MEMORY_LOCATION_H
#define SIM_CUDA_MEMORY_LOCATION_H

#include "cuda/driver.h"

enum location_type {
    LOCATION_NONE = 0, /* of managed pools alone */
    LOCATION_DEVICE = 1,
    LOCATION_HOST = 2,
    LOCATION_HOST_NUMA = 3,
    LOCATION_HOST_NUMA_CURRENT = 4,
    LOCATION_DOMAIN = 6, /* id: the device, and 256 times the domain */
};

enum { CUDA_13_0 = 13000, CUDA_13_2 = 13020, CUDA_13_4 = 13040 };

/* Does the driver speak that version of CUDA? */
static inline bool driver_knows(const struct driver *driver, int cuda_version)
{
    return driver->state->machine.cuda_version >= cuda_version;
}

/* Attribute 89: do device and host use managed memory at once? Since Pascal, on Linux. */
static inline bool concurrent_managed(const struct sim_gpu *gpu)
{
    return gpu->capability_major >= 6;
}

unsigned location_domains(const struct sim_gpu *gpu);

/* Bring `location` into the form that the driver answers with. device: what it is on; -1 for the
 * host. CUDA_ERROR_INVALID_VALUE for what this version does not know or nothing can be in. */
CUresult location_resolve(const struct driver *driver, CUmemLocation *location, int *device);

/* The domain of a resolved location; -1 where it is not of one. */
static inline int location_domain(const CUmemLocation *location)
{
    return location->type == LOCATION_DOMAIN ? location->id >> 8 & 0xff : -1;
}

#endif
