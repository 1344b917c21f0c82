#include "cuda/driver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

API CUresult cuDeviceGetCount(int *count)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *count = (int)driver->device_count;
    return CUDA_SUCCESS;
}

/* The GPU behind a device, for a function that writes to `out`. */
static CUresult gpu_for(CUdevice device, const void *out, const struct sim_gpu **gpu)
{
    struct driver *driver;
    CUresult result = driver_device(device, &driver, gpu);
    if (result == CUDA_SUCCESS && out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return result;
}

API CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
    const struct sim_gpu *gpu;
    CUresult result = gpu_for(ordinal, out, &gpu);
    if (result == CUDA_SUCCESS)
        *out = ordinal;
    return result;
}

API CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    const struct sim_gpu *gpu;
    CUresult result = gpu_for(device, name, &gpu);
    if (result != CUDA_SUCCESS)
        return result;
    if (size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    memset(name, 0, (size_t)size); /* callers take the whole buffer for the name */
    snprintf(name, (size_t)size, "%s", gpu->name);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    const struct sim_gpu *gpu;
    CUresult result = gpu_for(device, uuid, &gpu);
    if (result == CUDA_SUCCESS)
        memcpy(uuid->bytes, gpu->uuid, sizeof uuid->bytes);
    return result;
}
ALSO(cuDeviceGetUuid, cuDeviceGetUuid_v2);

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    const struct sim_gpu *gpu;
    CUresult result = gpu_for(device, bytes, &gpu);
    if (result == CUDA_SUCCESS)
        *bytes = gpu->memory_bytes - gpu->reserved_bytes;
    return result;
}

API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
    const struct sim_gpu *gpu;
    CUresult result = gpu_for(device, major, &gpu);
    if (result != CUDA_SUCCESS)
        return result;
    if (minor == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *major = (int)gpu->capability_major;
    *minor = (int)gpu->capability_minor;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice device)
{
    const struct sim_gpu *gpu;
    CUresult result = gpu_for(device, text, &gpu);
    if (result != CUDA_SUCCESS)
        return result;
    if (size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(text, (size_t)size, "%04x:%02x:%02x.0", gpu->pci_domain, gpu->pci_bus,
             gpu->pci_device);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetByPCIBusId(CUdevice *out, const char *text)
{
    struct driver *driver;
    unsigned domain, bus, slot;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || text == NULL || sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned device = 0; device < driver->device_count; device++) {
        const struct sim_gpu *gpu = &driver->state->machine.gpus[driver->gpus[device]];
        if (gpu->pci_domain != domain || gpu->pci_bus != bus || gpu->pci_device != slot)
            continue;
        *out = (CUdevice)device;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

static CUresult pair(CUdevice a, CUdevice b, const void *out)
{
    const struct sim_gpu *gpu;
    CUresult result = gpu_for(a, out, &gpu);
    return result == CUDA_SUCCESS ? gpu_for(b, out, &gpu) : result;
}

API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    CUresult result = pair(device, peer, can);
    if (result == CUDA_SUCCESS)
        *can = device != peer;
    return result;
}

API CUresult cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice device, CUdevice peer)
{
    enum { ACCESS_SUPPORTED = 2 };
    CUresult result = pair(device, peer, value);
    if (result != CUDA_SUCCESS)
        return result;
    if (device == peer)
        return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute == ACCESS_SUPPORTED;
    return CUDA_SUCCESS;
}
