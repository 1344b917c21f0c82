/* Who is on a GPU. Every list is asked for twice: with room for nothing to learn its size. */
#include "nvml/session.h"
#include <stdlib.h>
#include <time.h>

enum { MOST = SIM_PROCESSES, NO_INSTANCE = -1 };

/* The occupants of one GPU; returns how many. */
static unsigned occupants_of(struct session *session, unsigned gpu, struct sim_occupant out[MOST])
{
    unsigned kept = 0;
    struct sim_occupant *all = calloc((size_t)SIM_PROCESSES * SIM_GPUS, sizeof *all);
    if (all == NULL)
        return 0;
    unsigned count = account_occupants(session->state, all, SIM_PROCESSES * SIM_GPUS);
    for (unsigned i = 0; i < count; i++)
        if (all[i].gpu == gpu && kept < MOST)
            out[kept++] = all[i];
    free(all);
    return kept;
}

/* How many there are, and whether the caller's array of *count has room for them. */
static nvmlReturn_t fits(unsigned found, unsigned *count, const void *out)
{
    unsigned room = out != NULL ? *count : 0;
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static nvmlReturn_t occupants_for(nvmlDevice_t device, unsigned *count, const void *out,
                                  struct sim_occupant found[MOST])
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, count, &session, &gpu);
    return result == NVML_SUCCESS ? fits(occupants_of(session, device->gpu, found), count, out)
                                  : result;
}

API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                         nvmlProcessInfo_t *out)
{
    struct sim_occupant found[MOST];
    nvmlReturn_t result = occupants_for(device, count, out, found);
    for (unsigned i = 0; result == NVML_SUCCESS && i < *count; i++)
        out[i] = (nvmlProcessInfo_t){.pid = (unsigned)found[i].pid,
                                     .usedGpuMemory = found[i].bytes,
                                     .gpuInstanceId = (unsigned)NO_INSTANCE,
                                     .computeInstanceId = (unsigned)NO_INSTANCE};
    return result;
}
ALSO(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDeviceGetComputeRunningProcesses_v2);

API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                      nvmlProcessInfo_v1_t *out)
{
    struct sim_occupant found[MOST];
    nvmlReturn_t result = occupants_for(device, count, out, found);
    for (unsigned i = 0; result == NVML_SUCCESS && i < *count; i++)
        out[i] =
            (nvmlProcessInfo_v1_t){.pid = (unsigned)found[i].pid, .usedGpuMemory = found[i].bytes};
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

/* A time of CLOCK_MONOTONIC as NVML stamps it: microseconds since 1970. */
static unsigned long long timestamp(uint64_t monotonic_ns)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t real_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    return (real_ns - (sim_now() - monotonic_ns)) / 1000;
}

/* Samples strictly newer than `after`, of processes that used the GPU in their period. */
static unsigned newer(struct sim_occupant *found, unsigned count, unsigned long long after)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < count; i++)
        if (found[i].sm_percent > 0 && timestamp(found[i].sample_ns) > after)
            found[kept++] = found[i];
    return kept;
}

API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                 nvmlProcessUtilizationSample_t *out,
                                                 unsigned *count, unsigned long long after)
{
    struct session *session;
    const struct sim_gpu *gpu;
    struct sim_occupant found[MOST];
    nvmlReturn_t result = session_gpu(device, count, &session, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    unsigned samples = newer(found, occupants_of(session, device->gpu, found), after);
    if (samples == 0)
        return NVML_ERROR_NOT_FOUND;
    result = fits(samples, count, out);
    for (unsigned i = 0; result == NVML_SUCCESS && i < samples; i++)
        out[i] = (nvmlProcessUtilizationSample_t){.pid = (unsigned)found[i].pid,
                                                  .timeStamp = timestamp(found[i].sample_ns),
                                                  .smUtil = found[i].sm_percent};
    return result;
}
