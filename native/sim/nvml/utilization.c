/* How much each process used a GPU, as the driver samples it: core/period.h. */
#include "nvml/occupants.h"
#include "nvml/stamp.h"
#include <errno.h>

enum { SAMPLES_V1 = 0x1000018 };

/* Of a GPU, those with a later stamp; NVML_ERROR_NOT_FOUND if there are none. */
static nvmlReturn_t samples_get(nvmlDevice_t device, const void *needed, unsigned long long after,
                                struct sim_utilization out[SIM_PROCESSES], unsigned *samples)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, needed, &session, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    int found = account_utilization(session->state, device->gpu, stamp_end(after), out);
    if (found <= 0)
        return found == -ENOTSUP ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_NOT_FOUND;
    *samples = (unsigned)found;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                 nvmlProcessUtilizationSample_t *out,
                                                 unsigned *count, unsigned long long after)
{
    struct sim_utilization found[SIM_PROCESSES];
    unsigned samples;
    nvmlReturn_t result = samples_get(device, count, after, found, &samples);
    if (result == NVML_SUCCESS)
        result = occupants_fit(samples, count, out);
    for (unsigned i = 0; result == NVML_SUCCESS && i < samples; i++)
        out[i] = (nvmlProcessUtilizationSample_t){.pid = (unsigned)found[i].pid,
                                                  .timeStamp = stamp_of(found[i].sample_ns),
                                                  .smUtil = found[i].percent};
    return result;
}

API nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                       nvmlProcessesUtilizationInfo_v1_t *list)
{
    struct sim_utilization found[SIM_PROCESSES];
    unsigned samples;
    if (list != NULL && list->version != SAMPLES_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result =
        samples_get(device, list, list != NULL ? list->lastSeenTimeStamp : 0, found, &samples);
    if (result == NVML_SUCCESS)
        result = occupants_fit(samples, &list->processSamplesCount, list->procUtilArray);
    for (unsigned i = 0; result == NVML_SUCCESS && i < samples; i++)
        list->procUtilArray[i] =
            (nvmlProcessUtilizationInfo_v1_t){.timeStamp = stamp_of(found[i].sample_ns),
                                              .pid = (unsigned)found[i].pid,
                                              .smUtil = found[i].percent};
    return result;
}
