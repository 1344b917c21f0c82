#include "nvml/session.h"
#include "core/device_nodes.h"
#include <errno.h>
#include <string.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;
static struct session current;

nvmlReturn_t session_get(struct session **out)
{
    if (current.state == NULL)
        return NVML_ERROR_UNINITIALIZED;
    const struct sim_faults *faults = &current.state->faults;
    faults_delay(&faults->machine.call_ns);
    if (faults->machine.unloaded || faults->loads != current.loads)
        return NVML_ERROR_UNKNOWN;
    *out = &current;
    return NVML_SUCCESS;
}

nvmlReturn_t session_gpu(nvmlDevice_t device, const void *out, struct session **session,
                         const struct sim_gpu **gpu)
{
    nvmlReturn_t result = session_get(session);
    if (result != NVML_SUCCESS)
        return result;
    const struct device *first = (*session)->devices;
    if (out == NULL || device < first || device >= first + (*session)->device_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct sim_gpu_faults *faults = &(*session)->state->faults.gpus[device->gpu];
    faults_delay(&faults->call_ns);
    if (faults->lost)
        return NVML_ERROR_GPU_IS_LOST;
    *gpu = &account_machine((*session)->state)->gpus[device->gpu];
    return NVML_SUCCESS;
}

nvmlReturn_t session_number(nvmlDevice_t device, unsigned *out, unsigned value)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, out, &session, &gpu);
    if (result == NVML_SUCCESS)
        *out = value;
    return result;
}

nvmlReturn_t session_text(const char *text, char *out, unsigned size)
{
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

static nvmlReturn_t open_session(void)
{
    struct sim_state *state;
    unsigned gpus[SIM_GPUS];
    int result = device_nodes_open(&state);
    if (result != 0)
        return result == -EACCES ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_DRIVER_NOT_LOADED;
    faults_delay(&state->faults.machine.call_ns);
    if (state->faults.machine.unloaded) {
        sim_close(state);
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    current.loads = state->faults.loads;
    current.device_count = device_nodes_list(state, gpus);
    for (unsigned device = 0; device < current.device_count; device++)
        current.devices[device].gpu = gpus[device];
    current.state = state;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags; /* a machine without visible GPUs is accepted anyway */
    pthread_mutex_lock(&mutex);
    nvmlReturn_t result = users > 0 ? NVML_SUCCESS : open_session();
    if (result == NVML_SUCCESS)
        users++;
    pthread_mutex_unlock(&mutex);
    return result;
}

/* These two go through the exported names, as in the real library: a shim in front sees them. */
API nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

API nvmlReturn_t nvmlInit(void)
{
    return nvmlInit_v2();
}

API nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&mutex);
    nvmlReturn_t result = users > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (users > 0 && --users == 0) {
        sim_close(current.state);
        current = (struct session){0};
    }
    pthread_mutex_unlock(&mutex);
    return result;
}
