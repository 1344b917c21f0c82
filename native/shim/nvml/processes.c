/* Who is on a GPU: of the driver's lists, the container's processes and what the books say they
 * hold. Who holds memory and is hidden by the driver is added where NVML lists compute processes.
 */
#include "nvml/listing.h"

#define LAYOUT(type, memory_field)                                                                 \
    {.size = sizeof(type),                                                                         \
     .pid = offsetof(type, pid),                                                                   \
     .memory = offsetof(type, memory_field),                                                       \
     .has_memory = true}

static const struct residents_layout first = LAYOUT(nvmlProcessInfo_v1_t, usedGpuMemory),
                                     second = LAYOUT(nvmlProcessInfo_v2_t, usedGpuMemory),
                                     detail = LAYOUT(nvmlProcessDetail_v1_t, usedGpuMemory);

typedef nvmlReturn_t driver_list(nvmlDevice_t device, unsigned int *count, void *list);

enum processes { COMPUTE, GRAPHICS, MPS };

static nvmlReturn_t ask_list(const struct listing *listing, unsigned int *count, void *list)
{
    return listing->list(listing->device, count, list);
}

static nvmlReturn_t answer(enum processes which, const struct residents_layout *layout,
                           driver_list *driver, const void *caller, nvmlDevice_t device,
                           unsigned int *count, void *list)
{
    struct observation seen;
    struct listing listing = {.ask = ask_list,
                              .device = device,
                              .layout = layout,
                              .add_hidden = which == COMPUTE,
                              .list = driver};
    nvmlReturn_t result = observe_begin(&seen, device, caller);
    if (result != NVML_SUCCESS)
        return result;
    result = seen.session == NULL || count == NULL ? driver(device, count, list)
                                                   : listing_answer(&listing, &seen, count, list);
    observe_end();
    return result;
}

#define LIST(function, which, layout)                                                              \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, void *list)                    \
    {                                                                                              \
        return answer(which, &layout, REAL(function), HOOK_CALLER, device, count, list);           \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, COMPUTE, first)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, COMPUTE, second)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE, second)
LIST(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS, first)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS, second)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS, second)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, MPS, first)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, MPS, second)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS, second)

static nvmlReturn_t ask_details(const struct listing *listing, unsigned int *count, void *list)
{
    nvmlProcessDetailList_v1_t asked = *(const nvmlProcessDetailList_v1_t *)listing->details;
    asked.numProcArrayEntries = *count;
    asked.procArray = list;
    nvmlReturn_t result = REAL(nvmlDeviceGetRunningProcessDetailList)(listing->device, &asked);
    *count = asked.numProcArrayEntries;
    return result;
}

/* Of a version whose entries we do not know nothing can be handed on. */
static nvmlReturn_t answer_details(const struct observation *seen, nvmlDevice_t device,
                                   nvmlProcessDetailList_v1_t *details)
{
    struct listing listing = {.ask = ask_details,
                              .device = device,
                              .layout = &detail,
                              .add_hidden = details->mode == COMPUTE,
                              .details = details};
    if (details->version != (sizeof *details | 1u << 24))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return listing_answer(&listing, seen, &details->numProcArrayEntries, details->procArray);
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_v1_t *details)
{
    struct observation seen;
    nvmlReturn_t result = observe_begin(&seen, device, HOOK_CALLER);
    if (result != NVML_SUCCESS)
        return result;
    result = seen.session == NULL || details == NULL
                 ? REAL(nvmlDeviceGetRunningProcessDetailList)(device, details)
                 : answer_details(&seen, device, details);
    observe_end();
    return result;
}
