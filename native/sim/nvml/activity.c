/* What a GPU is doing. Sensors are not simulated: temperature, power and fans are left to the
 * stubs, which say that they are not supported. */
#include "nvml/session.h"

enum { CLOCK_MHZ = 1410 };

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

/* A property that is the same number for every simulated GPU. */
static nvmlReturn_t constant(nvmlDevice_t device, unsigned *out, unsigned value)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, out, &session, &gpu);
    if (result == NVML_SUCCESS)
        *out = value;
    return result;
}

API nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, unsigned *state)
{
    return constant(device, state, 0); /* P0, the highest */
}

API nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned *mode)
{
    return constant(device, mode, 1);
}

API nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned *mode)
{
    return constant(device, mode, 0); /* default: any number of processes */
}

API nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, unsigned *active)
{
    return constant(device, active, 0);
}
ALSO(nvmlDeviceGetDisplayActive, nvmlDeviceGetDisplayMode);

API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
    return constant(device, count, 0);
}

API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig)
{
    return constant(device, is_mig, 0);
}

API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned kind, unsigned *megahertz)
{
    (void)kind;
    return constant(device, megahertz, CLOCK_MHZ);
}
ALSO(nvmlDeviceGetMaxClockInfo, nvmlDeviceGetClockInfo);
