/* How much each process used a GPU, as the driver samples it: core/period.h. */
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

unsigned long long timestamp(uint64_t monotonic_ns)
{
    pthread_once(&epoch_once, find_epoch);
    return (epoch_ns + monotonic_ns) / 1000;
}

uint64_t last_with(unsigned long long stamp)
{
    pthread_once(&epoch_once, find_epoch);
    unsigned long long epoch = epoch_ns / 1000;
    if (stamp < epoch)
        return 0;
    if (stamp - epoch > UINT64_MAX / 1000 - 1)
        return UINT64_MAX;
    return (stamp + 1) * 1000 - 1 - epoch_ns;
}

/* Nobody has a newer sample: then real drivers list the processes on the GPU all the same, with
 * samples older than was asked for (Syllo/nvtop#110) or empty rows (tkestack/vcuda-controller#8).
 * Example: a limiter keeps a process from launching for a second, and has to see 0 % now. */
static nvmlReturn_t rows_of_idle(nvmlDevice_t device, const void *needed,
                                 struct sim_utilization out[SIM_PROCESSES], unsigned *rows)
{
    struct sim_occupant idle[OCCUPANTS];
    nvmlReturn_t result = occupants_get(device, needed, idle, rows);
    if (result != NVML_SUCCESS)
        return result;
    for (unsigned i = 0; i < *rows; i++)
        out[i] = (struct sim_utilization){.pid = idle[i].pid};
    return *rows > 0 ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

/* Of a GPU, those with a later stamp. NVML_ERROR_NOT_FOUND if no process is on it either. */
static nvmlReturn_t samples_get(nvmlDevice_t device, const void *needed, unsigned long long after,
                                struct sim_utilization out[SIM_PROCESSES], unsigned *samples)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, needed, &session, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    pthread_once(&epoch_once, find_epoch);
    int found = account_utilization(session->state, device->gpu, last_with(after), out);
    if (found < 0)
        return NVML_ERROR_NOT_SUPPORTED;
    if (found == 0)
        return rows_of_idle(device, needed, out, samples);
    *samples = (unsigned)found;
    return NVML_SUCCESS;
}

/* 0: never. */
static unsigned long long stamp_of(const struct sim_utilization *row)
{
    return row->sample_ns == 0 ? 0 : timestamp(row->sample_ns);
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
                                                  .timeStamp = stamp_of(&found[i]),
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
        list->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){.timeStamp = stamp_of(&found[i]),
                                                                   .pid = (unsigned)found[i].pid,
                                                                   .smUtil = found[i].percent};
    return result;
}
