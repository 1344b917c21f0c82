/* How the memory of a GPU is: errors that could not be corrected, rows that are replaced. */
#include "nvml/session.h"

enum { ECC_ON = 1, CORRECTED = 0 };

static nvmlReturn_t faults_of(nvmlDevice_t device, const void *out, struct sim_gpu_faults *faults)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, out, &session, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    *faults = session->state->faults.gpus[device->gpu];
    return session->state->faults.machine.no_ecc ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *now, unsigned *pending)
{
    struct sim_gpu_faults faults;
    nvmlReturn_t result = faults_of(device, now, &faults);
    if (result == NVML_SUCCESS)
        *now = ECC_ON;
    if (result == NVML_SUCCESS && pending != NULL)
        *pending = ECC_ON;
    return result;
}

/* Volatile and aggregate are the same: a simulated machine is not older than its driver. */
API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned error, unsigned counter,
                                             unsigned long long *count)
{
    struct sim_gpu_faults faults;
    (void)counter;
    nvmlReturn_t result = faults_of(device, count, &faults);
    if (result == NVML_SUCCESS)
        *count = error == CORRECTED ? 0 : faults.double_bits;
    return result;
}

API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected,
                                           unsigned *uncorrected, unsigned *pending,
                                           unsigned *failed)
{
    struct sim_gpu_faults faults;
    nvmlReturn_t result = faults_of(device, corrected, &faults);
    if (result != NVML_SUCCESS)
        return result;
    *corrected = 0;
    *uncorrected = faults.remap_pending;
    *pending = faults.remap_pending;
    *failed = faults.remap_failed;
    return NVML_SUCCESS;
}
