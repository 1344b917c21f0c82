#include "cuda/memory/location.h"

enum { FIRST_WITH_TWO_DOMAINS = 10 }; /* compute capability */

unsigned location_domains(const struct sim_gpu *gpu)
{
    return gpu->capability_major >= FIRST_WITH_TWO_DOMAINS ? 2 : 1;
}

static CUresult of_device(const struct driver *driver, CUmemLocation *location, int *device)
{
    bool known = location->id >= 0 && (unsigned)location->id < driver->device_count;
    *device = location->id;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult of_domain(const struct driver *driver, CUmemLocation *location, int *device)
{
    CUmemLocation whole = {LOCATION_DEVICE, location->id & 0xff};
    CUresult result = of_device(driver, &whole, device);
    if (result != CUDA_SUCCESS)
        return result;
    unsigned domains = location_domains(&driver->state->machine.gpus[driver->gpus[*device]]);
    if ((unsigned)location_domain(location) >= domains)
        return CUDA_ERROR_INVALID_VALUE;
    location->id &= 0xffff; /* the rest of the union is not read */
    if (domains == 1)
        *location = whole;
    return CUDA_SUCCESS;
}

/* Node 0, and those that GPUs are near to. */
static bool is_numa_node(const struct driver *driver, int node)
{
    for (unsigned gpu = 0; gpu < driver->state->machine.gpu_count; gpu++)
        if (driver->state->machine.gpus[gpu].numa_node == node && node >= 0)
            return true;
    return node == 0;
}

CUresult location_resolve(const struct driver *driver, CUmemLocation *location, int *device)
{
    *device = -1;
    switch (location->type) {
    case LOCATION_DEVICE:
        return of_device(driver, location, device);
    case LOCATION_HOST:
        location->id = 0; /* ignored */
        return driver_knows(driver, CUDA_13_0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case LOCATION_HOST_NUMA:
        return is_numa_node(driver, location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case LOCATION_DOMAIN:
        return driver_knows(driver, CUDA_13_4) ? of_domain(driver, location, device)
                                               : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}
