/* Event sets: what happens to the GPUs that are registered, told once to each set. */
#include "nvml/session.h"
#include <stdlib.h>

enum { SUPPORTED = SIM_EVENT_DOUBLE_BIT | SIM_EVENT_XID, NO_INSTANCE = -1 };

/* types: what is registered, by GPU of the machine. seen: events before that are old. */
struct event_set {
    uint64_t types[SIM_GPUS];
    uint64_t seen;
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
    if (*out == NULL)
        return NVML_ERROR_MEMORY;
    sim_lock(session->state);
    (*out)->seen = session->state->faults.event_count;
    sim_unlock(session->state);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlEventSetFree(struct event_set *set)
{
    free(set);
    return NVML_SUCCESS;
}

static nvmlReturn_t supporting(nvmlDevice_t device, const void *out, struct session **session)
{
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, out, session, &gpu);
    if (result == NVML_SUCCESS && (*session)->state->faults.machine.no_events)
        return NVML_ERROR_NOT_SUPPORTED;
    return result;
}

API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                          struct event_set *set)
{
    struct session *session;
    nvmlReturn_t result = supporting(device, set, &session);
    if (result != NVML_SUCCESS)
        return result;
    if ((types & ~(unsigned long long)SUPPORTED) != 0)
        return NVML_ERROR_NOT_SUPPORTED;
    set->types[device->gpu] |= types;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    struct session *session;
    nvmlReturn_t result = supporting(device, types, &session);
    if (result == NVML_SUCCESS)
        *types = SUPPORTED;
    return result;
}

/* The handle of a GPU of the machine: it is registered, so the session has one. */
static nvmlDevice_t handle_of(struct session *session, unsigned gpu)
{
    nvmlDevice_t device = session->devices;
    while (device->gpu != gpu)
        device++;
    return device;
}

static bool any_lost(const struct session *session, const struct event_set *set)
{
    for (unsigned gpu = 0; gpu < SIM_GPUS; gpu++)
        if (set->types[gpu] != 0 && session->state->faults.gpus[gpu].lost)
            return true;
    return false;
}

/* NVML_ERROR_TIMEOUT: nothing yet. */
static nvmlReturn_t look(struct event_set *set, nvmlEventData_t *out, struct session **session)
{
    struct sim_event event;
    nvmlReturn_t result = session_get(session);
    if (result != NVML_SUCCESS)
        return result;
    if (faults_next((*session)->state, set->types, &set->seen, &event)) {
        *out = (nvmlEventData_t){.device = handle_of(*session, event.gpu),
                                 .eventType = event.type,
                                 .eventData = event.number,
                                 .gpuInstanceId = (unsigned)NO_INSTANCE,
                                 .computeInstanceId = (unsigned)NO_INSTANCE};
        return NVML_SUCCESS;
    }
    return any_lost(*session, set) ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_TIMEOUT;
}

API nvmlReturn_t nvmlEventSetWait_v2(struct event_set *set, nvmlEventData_t *event,
                                     unsigned timeout_ms)
{
    struct session *session;
    if (set == NULL || event == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = session_get(&session);
    uint64_t deadline = sim_now() + timeout_ms * UINT64_C(1000000);
    while (result == NVML_SUCCESS) {
        uint32_t changes = faults_changes(session->state);
        result = look(set, event, &session);
        uint64_t now = sim_now();
        if (result != NVML_ERROR_TIMEOUT || now >= deadline)
            return result;
        faults_wait(session->state, changes, deadline - now);
        result = NVML_SUCCESS;
    }
    return result;
}
ALSO(nvmlEventSetWait_v2, nvmlEventSetWait);
