/* An NVML that counts; like the real one it calls its own exports through the linker's table. */
#include "nvml_types.h"

#include <stdatomic.h>
#include <stdio.h>

static atomic_int uuid_calls;
static const unsigned long long physical = 1ull << 30;

int stand_in_uuid_calls(void)
{
    return uuid_calls;
}

int nvmlInit_v2(void)
{
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    *device = (nvmlDevice_t)(unsigned long)(index + 1);
    return NVML_SUCCESS;
}

/* Device 0 has the identity of the CUDA stand-in's device 0. */
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    atomic_fetch_add(&uuid_calls, 1);
    const char *format = (unsigned long)device == 1 ? "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
                                                    : "GPU-ffffffff-ffff-ffff-ffff-ffffffffffff";
    snprintf(uuid, length, "%s", format);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    (void)device;
    if (memory->version != (sizeof *memory | 2u << 24))
        return 25; /* NVML_ERROR_ARGUMENT_VERSION_MISMATCH */
    memory->total = physical;
    memory->reserved = 4096;
    memory->used = 12288;
    memory->free = physical - 4096 - 12288;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    nvmlMemory_v2_t full = {.version = sizeof full | 2u << 24};
    nvmlReturn_t result = nvmlDeviceGetMemoryInfo_v2(device, &full);
    *memory = (nvmlMemory_t){full.total, full.free, full.used};
    return result;
}
