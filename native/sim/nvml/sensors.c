/* Power, temperature and clocks. No model of a card: what every simulated GPU draws and how warm it
 * gets follows from how busy it was in the last sample period, in a straight line. */
#include "nvml/session.h"

enum {
    IDLE_MW = 50000,
    LEAST_LIMIT_MW = 100000,
    LIMIT_MW = 300000,
    COOL_CELSIUS = 30,
    HOT_CELSIUS = 80,
    CLOCK_MHZ = 1410,
};
enum { CLOCK_KINDS = 4, CLOCK_IDS = 4, SUPPORTED_REASONS = 0x1ff, GPU_IDLE = 1 };

static unsigned power_at(unsigned percent)
{
    return IDLE_MW + (LIMIT_MW - IDLE_MW) / 100 * percent;
}

static nvmlReturn_t busy(nvmlDevice_t device, const void *out, unsigned *percent)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, out, &session, &gpu);
    if (result == NVML_SUCCESS)
        *percent = account_busy_percent(session->state, device->gpu);
    return result;
}

API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts)
{
    unsigned percent;
    nvmlReturn_t result = busy(device, milliwatts, &percent);
    if (result == NVML_SUCCESS)
        *milliwatts = power_at(percent);
    return result;
}

/* Of this machine, not since its host was started: time that nobody looked at drew idle power. */
API nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device,
                                                     unsigned long long *millijoules)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, millijoules, &session, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    uint64_t busy_us = account_gpu_busy_ns(session->state, device->gpu) / 1000;
    *millijoules = (sim_now() / 1000 * IDLE_MW + busy_us * (LIMIT_MW - IDLE_MW)) / 1000000;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, unsigned *mode)
{
    return session_number(device, mode, 1);
}

API nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned *milliwatts)
{
    return session_number(device, milliwatts, LIMIT_MW);
}
ALSO(nvmlDeviceGetPowerManagementLimit, nvmlDeviceGetPowerManagementDefaultLimit);
ALSO(nvmlDeviceGetPowerManagementLimit, nvmlDeviceGetEnforcedPowerLimit);

API nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned *least,
                                                              unsigned *most)
{
    nvmlReturn_t result = session_number(device, least, LEAST_LIMIT_MW);
    return result == NVML_SUCCESS ? session_number(device, most, LIMIT_MW) : result;
}

API nvmlReturn_t nvmlDeviceGetPowerSource(nvmlDevice_t device, unsigned *source)
{
    enum { AC = 0 };
    return session_number(device, source, AC);
}

API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *celsius)
{
    enum { GPU_DIE = 0 };
    unsigned percent;
    nvmlReturn_t result = busy(device, celsius, &percent);
    if (result == NVML_SUCCESS && sensor != GPU_DIE)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *celsius = COOL_CELSIUS + (HOT_CELSIUS - COOL_CELSIUS) * percent / 100;
    return result;
}

/* Fans that would have to be heard have a threshold of their own: there are none. */
API nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned which,
                                                   unsigned *celsius)
{
    enum { KINDS = 8 };
    static const unsigned thresholds[KINDS] = {95, 92, 95,
                                               85}; /* shutdown, slowdown, memory, GPU */
    unsigned percent;
    nvmlReturn_t result = busy(device, celsius, &percent);
    if (result != NVML_SUCCESS)
        return result;
    if (which >= KINDS)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (thresholds[which] == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *celsius = thresholds[which];
    return NVML_SUCCESS;
}

/* All clocks run at one frequency, which nothing changes. */
API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned kind, unsigned *megahertz)
{
    if (kind >= CLOCK_KINDS)
        return NVML_ERROR_INVALID_ARGUMENT;
    return session_number(device, megahertz, CLOCK_MHZ);
}
ALSO(nvmlDeviceGetClockInfo, nvmlDeviceGetMaxClockInfo);
ALSO(nvmlDeviceGetClockInfo, nvmlDeviceGetApplicationsClock);
ALSO(nvmlDeviceGetClockInfo, nvmlDeviceGetDefaultApplicationsClock);
ALSO(nvmlDeviceGetClockInfo, nvmlDeviceGetMaxCustomerBoostClock);

API nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, unsigned kind, unsigned id,
                                    unsigned *megahertz)
{
    return id < CLOCK_IDS ? nvmlDeviceGetClockInfo(device, kind, megahertz)
                          : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned *count,
                                                    unsigned *megahertz)
{
    unsigned room = count != NULL ? *count : 0;
    nvmlReturn_t result = session_number(device, count, 1);
    if (result == NVML_SUCCESS && room == 0)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    return result == NVML_SUCCESS ? session_number(device, megahertz, CLOCK_MHZ) : result;
}

API nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned memory,
                                                      unsigned *count, unsigned *megahertz)
{
    return memory == CLOCK_MHZ ? nvmlDeviceGetSupportedMemoryClocks(device, count, megahertz)
                               : NVML_ERROR_NOT_FOUND;
}

API nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device,
                                                        unsigned long long *reasons)
{
    unsigned percent;
    nvmlReturn_t result = busy(device, reasons, &percent);
    if (result == NVML_SUCCESS)
        *reasons = percent == 0 ? GPU_IDLE : 0;
    return result;
}
ALSO(nvmlDeviceGetCurrentClocksEventReasons, nvmlDeviceGetCurrentClocksThrottleReasons);

API nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device,
                                                          unsigned long long *reasons)
{
    unsigned percent;
    nvmlReturn_t result = busy(device, reasons, &percent);
    if (result == NVML_SUCCESS)
        *reasons = SUPPORTED_REASONS;
    return result;
}
ALSO(nvmlDeviceGetSupportedClocksEventReasons, nvmlDeviceGetSupportedClocksThrottleReasons);

/* False: of nothing that is simulated. */
static bool sample_value(unsigned kind, unsigned percent, unsigned *value)
{
    enum { POWER = 0, UTILIZATION = 1, PROCESSOR_CLOCK = 5, MEMORY_CLOCK = 6 };
    switch (kind) {
    case POWER:
        *value = power_at(percent);
        return true;
    case UTILIZATION:
        *value = percent;
        return true;
    case PROCESSOR_CLOCK:
    case MEMORY_CLOCK:
        *value = CLOCK_MHZ;
        return true;
    default:
        return false;
    }
}

/* Without an array: how many places would do. With one: the oldest that fit. */
API nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, unsigned kind, unsigned long long after,
                                      unsigned *type, unsigned *count, nvmlSample_t *out)
{
    enum { UNSIGNED_INT = 1 };
    struct session *session;
    const struct sim_gpu *gpu;
    struct sim_period periods[SIM_RING];
    unsigned value;
    nvmlReturn_t result = session_gpu(device, count, &session, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (type == NULL || (out != NULL && *count == 0))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!sample_value(kind, 0, &value))
        return NVML_ERROR_NOT_SUPPORTED;
    *type = UNSIGNED_INT;
    unsigned found = account_periods(session->state, device->gpu, last_with(after), periods);
    if (out == NULL) {
        *count = SIM_RING;
        return NVML_SUCCESS;
    }
    if (found == 0)
        return NVML_ERROR_NOT_FOUND;
    *count = found < *count ? found : *count;
    for (unsigned i = 0; i < *count; i++) {
        sample_value(kind, periods[i].percent, &value);
        out[i] = (nvmlSample_t){.timeStamp = timestamp(periods[i].ended_ns), .value = value};
    }
    return NVML_SUCCESS;
}
