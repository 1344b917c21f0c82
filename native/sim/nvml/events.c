/* Event sets, in which nothing ever happens: a wait ends with its timeout. */
#include "nvml/session.h"
#include <stdlib.h>
#include <time.h>

struct event_set {
    unsigned long long registered;
};

API nvmlReturn_t nvmlEventSetCreate(struct event_set **out)
{
    struct session *session;
    nvmlReturn_t result = session_get(&session);
    if (result != NVML_SUCCESS)
        return result;
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *out = calloc(1, sizeof **out);
    return *out != NULL ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

API nvmlReturn_t nvmlEventSetFree(struct event_set *set)
{
    free(set);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                          struct event_set *set)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, set, &session, &gpu);
    if (result == NVML_SUCCESS)
        set->registered |= types;
    return result;
}

API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    enum { XID_CRITICAL = 8 };
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, types, &session, &gpu);
    if (result == NVML_SUCCESS)
        *types = XID_CRITICAL;
    return result;
}

API nvmlReturn_t nvmlEventSetWait_v2(struct event_set *set, void *event, unsigned timeout_ms)
{
    struct timespec timeout = {.tv_sec = timeout_ms / 1000,
                               .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
    if (set == NULL || event == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    clock_nanosleep(CLOCK_MONOTONIC, 0, &timeout, NULL);
    return NVML_ERROR_TIMEOUT;
}
ALSO(nvmlEventSetWait_v2, nvmlEventSetWait);
