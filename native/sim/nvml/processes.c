/* The processes on a GPU: all of them compute. */
#include "nvml/occupants.h"

/* Not on the stack, which may be small. */
static __thread struct sim_occupant found[OCCUPANTS];

enum { NO_INSTANCE = -1, COMPUTE = 0, MPS = 2, DETAILS_V1 = 0x1000018 };

static nvmlReturn_t occupants_for(nvmlDevice_t device, unsigned *count, const void *out)
{
    unsigned held;
    nvmlReturn_t result = occupants_get(device, count, found, &held);
    return result == NVML_SUCCESS ? occupants_fit(held, count, out) : result;
}

API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                         nvmlProcessInfo_t *out)
{
    nvmlReturn_t result = occupants_for(device, count, out);
    for (unsigned i = 0; result == NVML_SUCCESS && i < *count; i++)
        out[i] = (nvmlProcessInfo_t){.pid = (unsigned)found[i].pid,
                                     .usedGpuMemory = found[i].told_bytes,
                                     .gpuInstanceId = (unsigned)NO_INSTANCE,
                                     .computeInstanceId = (unsigned)NO_INSTANCE};
    return result;
}
ALSO(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDeviceGetComputeRunningProcesses_v2);

API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                      nvmlProcessInfo_v1_t *out)
{
    nvmlReturn_t result = occupants_for(device, count, out);
    for (unsigned i = 0; result == NVML_SUCCESS && i < *count; i++)
        out[i] = (nvmlProcessInfo_v1_t){.pid = (unsigned)found[i].pid,
                                        .usedGpuMemory = found[i].told_bytes};
    return result;
}

/* No simulated process draws, and none uses the multi-process service. */
API nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                          nvmlProcessInfo_t *out)
{
    struct session *session;
    const struct sim_gpu *gpu;
    (void)out;
    nvmlReturn_t result = session_gpu(device, count, &session, &gpu);
    if (result == NVML_SUCCESS)
        *count = 0;
    return result;
}
ALSO(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlDeviceGetGraphicsRunningProcesses_v2);
ALSO(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlDeviceGetGraphicsRunningProcesses);
ALSO(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlDeviceGetMPSComputeRunningProcesses_v3);
ALSO(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlDeviceGetMPSComputeRunningProcesses_v2);
ALSO(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlDeviceGetMPSComputeRunningProcesses);

static void describe(const struct sim_occupant *occupant, nvmlProcessDetail_v1_t *out)
{
    *out = (nvmlProcessDetail_v1_t){.pid = (unsigned)occupant->pid,
                                    .usedGpuMemory = occupant->told_bytes,
                                    .gpuInstanceId = (unsigned)NO_INSTANCE,
                                    .computeInstanceId = (unsigned)NO_INSTANCE};
}

API nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                       nvmlProcessDetailList_v1_t *list)
{
    unsigned held;
    nvmlReturn_t result = occupants_get(device, list, found, &held);
    if (result != NVML_SUCCESS)
        return result;
    if (list->version != DETAILS_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (list->mode > MPS)
        return NVML_ERROR_INVALID_ARGUMENT;
    held = list->mode == COMPUTE ? held : 0;
    result = occupants_fit(held, &list->numProcArrayEntries, list->procArray);
    for (unsigned i = 0; result == NVML_SUCCESS && i < held; i++)
        describe(&found[i], &list->procArray[i]);
    return result;
}
