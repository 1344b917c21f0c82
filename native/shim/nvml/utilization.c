/* How much each process used a GPU lately: the driver's samples, the container's alone.
 *
 * The figures are the driver's: percent of the whole GPU, as documented, and not of what was
 * granted. Without a sample of the container's NVML says that there is none.
 */
#include "nvml/listing.h"

static const struct residents_layout sample = {.size = sizeof(nvmlProcessUtilizationSample_t),
                                               .pid =
                                                   offsetof(nvmlProcessUtilizationSample_t, pid)},
                                     longer = {.size = sizeof(nvmlProcessUtilizationInfo_v1_t),
                                               .pid =
                                                   offsetof(nvmlProcessUtilizationInfo_v1_t, pid)};

static nvmlReturn_t ask_samples(const struct listing *listing, unsigned int *count, void *list)
{
    const unsigned long long *after = listing->details;
    return REAL(nvmlDeviceGetProcessUtilization)(listing->device, list, count, *after);
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, void *list, unsigned int *count,
                                             unsigned long long after)
{
    struct observation seen;
    struct listing listing = {.ask = ask_samples,
                              .device = device,
                              .layout = &sample,
                              .if_none = NVML_ERROR_NOT_FOUND,
                              .details = &after};
    nvmlReturn_t result = observe_begin(&seen, device, HOOK_CALLER);
    if (result != NVML_SUCCESS)
        return result;
    result = seen.session == NULL || count == NULL
                 ? REAL(nvmlDeviceGetProcessUtilization)(device, list, count, after)
                 : listing_answer(&listing, &seen, count, list);
    observe_end();
    return result;
}

static nvmlReturn_t ask_longer(const struct listing *listing, unsigned int *count, void *list)
{
    nvmlProcessesUtilizationInfo_v1_t asked =
        *(const nvmlProcessesUtilizationInfo_v1_t *)listing->details;
    asked.processSamplesCount = *count;
    asked.procUtilArray = list;
    nvmlReturn_t result = REAL(nvmlDeviceGetProcessesUtilizationInfo)(listing->device, &asked);
    *count = asked.processSamplesCount;
    return result;
}

/* Of a version whose entries we do not know nothing can be handed on. */
static nvmlReturn_t answer_longer(const struct observation *seen, nvmlDevice_t device,
                                  nvmlProcessesUtilizationInfo_v1_t *samples)
{
    struct listing listing = {.ask = ask_longer,
                              .device = device,
                              .layout = &longer,
                              .if_none = NVML_ERROR_NOT_FOUND,
                              .details = samples};
    if (samples->version != (sizeof *samples | 1u << 24))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return listing_answer(&listing, seen, &samples->processSamplesCount, samples->procUtilArray);
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_v1_t *samples)
{
    struct observation seen;
    nvmlReturn_t result = observe_begin(&seen, device, HOOK_CALLER);
    if (result != NVML_SUCCESS)
        return result;
    result = seen.session == NULL || samples == NULL
                 ? REAL(nvmlDeviceGetProcessesUtilizationInfo)(device, samples)
                 : answer_longer(&seen, device, samples);
    observe_end();
    return result;
}
