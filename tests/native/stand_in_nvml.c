/* An NVML that counts; like the real one it calls its own exports through the linker's table. */
#include "nvml_types.h"

#include <stdatomic.h>
#include <stdio.h>

static atomic_int uuid_calls;
static void (*_Atomic interrupt)(void);
static const unsigned long long physical = 1ull << 30;

int stand_in_uuid_calls(void)
{
    return uuid_calls;
}

/* Called once, within the next question for memory: where a signal could arrive. */
void stand_in_interrupt(void (*function)(void))
{
    atomic_store(&interrupt, function);
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
    void (*function)(void) = atomic_exchange(&interrupt, NULL);
    if (function != NULL)
        function();
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

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    (void)device;
    *memory = (nvmlBAR1Memory_t){128 << 20, 120 << 20, 8 << 20};
    return NVML_SUCCESS;
}

/* Who is on every GPU, by kind of list, as the test says. */
enum { COMPUTE, GRAPHICS, MPS, ACCOUNTED, KINDS, MOST = 300 };

static struct {
    unsigned int pids[MOST], count;
} occupants[KINDS];

void stand_in_occupy(int kind, unsigned int pid)
{
    occupants[kind].pids[occupants[kind].count++] = pid;
}

/* NVML's way with lists. */
static nvmlReturn_t fits(int kind, unsigned int *count, const void *list)
{
    unsigned int room = list == NULL ? 0 : *count;
    *count = occupants[kind].count;
    return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static const unsigned long long seen_by_driver = 5 << 20;

static nvmlReturn_t list_second(int kind, unsigned int *count, nvmlProcessInfo_v2_t *list)
{
    nvmlReturn_t result = fits(kind, count, list);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < *count; i++)
        list[i] = (nvmlProcessInfo_v2_t){occupants[kind].pids[i], seen_by_driver, 3, 4};
    return result;
}

/* The list of the second version, shortened. */
static nvmlReturn_t shorten(nvmlReturn_t result, unsigned int count,
                            const nvmlProcessInfo_v2_t *from, nvmlProcessInfo_v1_t *to)
{
    for (unsigned int i = 0; result == NVML_SUCCESS && i < count; i++)
        to[i] = (nvmlProcessInfo_v1_t){from[i].pid, from[i].usedGpuMemory};
    return result;
}

/* The first versions call the third by its exported name. */
#define LISTS(name, kind)                                                                          \
    nvmlReturn_t name##_v3(nvmlDevice_t device, unsigned int *count, void *list)                   \
    {                                                                                              \
        (void)device;                                                                              \
        return list_second(kind, count, list);                                                     \
    }                                                                                              \
    nvmlReturn_t name##_v2(nvmlDevice_t device, unsigned int *count, void *list)                   \
    {                                                                                              \
        return name##_v3(device, count, list);                                                     \
    }                                                                                              \
    nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, void *list)                        \
    {                                                                                              \
        nvmlProcessInfo_v2_t longer[MOST];                                                         \
        unsigned int room = list == NULL ? 0 : *count;                                             \
        *count = room < MOST ? room : MOST;                                                        \
        nvmlReturn_t result = name##_v3(device, count, list == NULL ? NULL : longer);              \
        return shorten(result, *count, longer, list);                                              \
    }

LISTS(nvmlDeviceGetComputeRunningProcesses, COMPUTE)
LISTS(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS)
LISTS(nvmlDeviceGetMPSComputeRunningProcesses, MPS)

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_v1_t *details)
{
    (void)device;
    nvmlReturn_t result =
        fits((int)details->mode, &details->numProcArrayEntries, details->procArray);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < details->numProcArrayEntries; i++)
        details->procArray[i] =
            (nvmlProcessDetail_v1_t){occupants[details->mode].pids[i], seen_by_driver, 3, 4, 77};
    return result;
}

/* One sample of each compute process; its utilisation is its place in the list. */
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, void *list, unsigned int *count,
                                             unsigned long long after)
{
    (void)device;
    if (occupants[COMPUTE].count == 0)
        return NVML_ERROR_NOT_FOUND;
    nvmlProcessUtilizationSample_t *samples = list;
    nvmlReturn_t result = fits(COMPUTE, count, list);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < *count; i++)
        samples[i] = (nvmlProcessUtilizationSample_t){
            .pid = occupants[COMPUTE].pids[i], .timeStamp = after + 1, .smUtil = i};
    return result;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_v1_t *list)
{
    (void)device;
    nvmlReturn_t result = fits(COMPUTE, &list->processSamplesCount, list->procUtilArray);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < list->processSamplesCount; i++)
        list->procUtilArray[i] =
            (nvmlProcessUtilizationInfo_v1_t){.pid = occupants[COMPUTE].pids[i],
                                              .timeStamp = list->lastSeenTimeStamp + 1,
                                              .smUtil = i};
    return result;
}

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count,
                                         unsigned int *pids)
{
    (void)device;
    nvmlReturn_t result = fits(ACCOUNTED, count, pids);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < *count; i++)
        pids[i] = occupants[ACCOUNTED].pids[i];
    return result;
}

/* Says of each process its pid as the time it ran. */
nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
                                          nvmlAccountingStats_t *stats)
{
    (void)device;
    for (unsigned int i = 0; i < occupants[ACCOUNTED].count; i++)
        if (occupants[ACCOUNTED].pids[i] == pid) {
            *stats = (nvmlAccountingStats_t){.time = pid};
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}
