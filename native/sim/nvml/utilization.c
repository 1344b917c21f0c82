/* How much each process used a GPU: of each the latest sample period in which it did, if that is
 * among the last few. */
#include "nvml/occupants.h"
#include <time.h>

enum { SAMPLES_V1 = 0x1000018 };

static uint64_t epoch_ns;
static pthread_once_t epoch_once = PTHREAD_ONCE_INIT;

static void find_epoch(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    epoch_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec - sim_now();
}

/* A time of CLOCK_MONOTONIC as NVML stamps it: microseconds since 1970. The clocks are compared
 * once, so that a sample keeps its stamp and is not taken for a newer one. */
static unsigned long long timestamp(uint64_t monotonic_ns)
{
    pthread_once(&epoch_once, find_epoch);
    return (epoch_ns + monotonic_ns) / 1000;
}

/* Samples strictly newer than `after`. */
static unsigned newer(struct sim_occupant *found, unsigned count, unsigned long long after)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < count; i++)
        if (found[i].sm_percent > 0 && timestamp(found[i].sample_ns) > after)
            found[kept++] = found[i];
    return kept;
}

/* Of a GPU; NVML_ERROR_NOT_FOUND if there are none. */
static nvmlReturn_t samples_get(nvmlDevice_t device, const void *needed, unsigned long long after,
                                struct sim_occupant out[OCCUPANTS], unsigned *samples)
{
    unsigned found;
    nvmlReturn_t result = occupants_get(device, needed, out, &found);
    if (result != NVML_SUCCESS)
        return result;
    *samples = newer(out, found, after);
    return *samples == 0 ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                 nvmlProcessUtilizationSample_t *out,
                                                 unsigned *count, unsigned long long after)
{
    struct sim_occupant found[OCCUPANTS];
    unsigned samples;
    nvmlReturn_t result = samples_get(device, count, after, found, &samples);
    if (result == NVML_SUCCESS)
        result = occupants_fit(samples, count, out);
    for (unsigned i = 0; result == NVML_SUCCESS && i < samples; i++)
        out[i] = (nvmlProcessUtilizationSample_t){.pid = (unsigned)found[i].pid,
                                                  .timeStamp = timestamp(found[i].sample_ns),
                                                  .smUtil = found[i].sm_percent};
    return result;
}

API nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                       nvmlProcessesUtilizationInfo_v1_t *list)
{
    struct sim_occupant found[OCCUPANTS];
    unsigned samples;
    if (list != NULL && list->version != SAMPLES_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result =
        samples_get(device, list, list != NULL ? list->lastSeenTimeStamp : 0, found, &samples);
    if (result == NVML_SUCCESS)
        result = occupants_fit(samples, &list->processSamplesCount, list->procUtilArray);
    for (unsigned i = 0; result == NVML_SUCCESS && i < samples; i++)
        list->procUtilArray[i] =
            (nvmlProcessUtilizationInfo_v1_t){.timeStamp = timestamp(found[i].sample_ns),
                                              .pid = (unsigned)found[i].pid,
                                              .smUtil = found[i].sm_percent};
    return result;
}
