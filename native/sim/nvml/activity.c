/* What a GPU is doing, and the modes it is in. Fans are left to the stubs, which say that they are
 * not supported, as on passively cooled cards. */
#include "nvml/session.h"

API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, rates, &session, &gpu);
    if (result == NVML_SUCCESS)
        *rates = (nvmlUtilization_t){.gpu = account_busy_percent(session->state, device->gpu)};
    return result;
}

/* No simulated GPU encodes or decodes. */
API nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned *percent,
                                                 unsigned *period_us)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, percent, &session, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    *percent = 0;
    if (period_us != NULL)
        *period_us = 166667;
    return NVML_SUCCESS;
}
ALSO(nvmlDeviceGetEncoderUtilization, nvmlDeviceGetDecoderUtilization);

API nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, unsigned *state)
{
    return session_number(device, state, 0); /* P0, the highest */
}
ALSO(nvmlDeviceGetPerformanceState, nvmlDeviceGetPowerState);

API nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned *mode)
{
    return session_number(device, mode, 1);
}

API nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned *mode)
{
    return session_number(device, mode, 0); /* default: any number of processes */
}

API nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, unsigned *active)
{
    return session_number(device, active, 0);
}
ALSO(nvmlDeviceGetDisplayActive, nvmlDeviceGetDisplayMode);

API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
    return session_number(device, count, 0);
}

API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig)
{
    return session_number(device, is_mig, 0);
}
