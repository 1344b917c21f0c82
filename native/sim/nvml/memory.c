#include "nvml/session.h"

enum {
    MEMORY_V2 = 0x2000028, /* version 2 of a struct of 40 bytes */
    WINDOW = 256 << 20,    /* through which the host sees device memory, on cards of a server */
};

/* total is the card's, of which the driver keeps `reserved`: the three others add up to it. */
API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, memory, &session, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (session->state->machine.driver.hides_memory)
        return NVML_ERROR_NOT_SUPPORTED;
    if (memory->version != MEMORY_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memory->total = gpu->memory_bytes;
    memory->reserved = gpu->reserved_bytes;
    memory->used = account_used(session->state, device->gpu);
    memory->free = memory->total - memory->reserved - memory->used;
    return NVML_SUCCESS;
}

/* By way of the exported name, as the real library does in places. Here `used` is all that is not
 * free: also what the driver keeps (nvml.h: "sum of reserved and allocated"). */
API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    nvmlMemory_v2_t second = {.version = MEMORY_V2};
    nvmlReturn_t result = nvmlDeviceGetMemoryInfo_v2(device, memory != NULL ? &second : NULL);
    if (result == NVML_SUCCESS)
        *memory = (nvmlMemory_t){
            .total = second.total, .free = second.free, .used = second.total - second.free};
    return result;
}

/* Nothing simulated goes through the window. */
API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, memory, &session, &gpu);
    if (result == NVML_SUCCESS)
        *memory = (nvmlBAR1Memory_t){.bar1Total = WINDOW, .bar1Free = WINDOW};
    return result;
}
