#include "nvml/session.h"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    struct session *session;
    nvmlReturn_t result = session_get(&session);
    if (result != NVML_SUCCESS)
        return result;
    return session_text(account_machine(session->state)->driver_version, version, size);
}

API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned size)
{
    struct session *session;
    char text[SIM_NAME_SIZE + 16];
    nvmlReturn_t result = session_get(&session);
    if (result != NVML_SUCCESS)
        return result;
    const struct sim_machine *machine = account_machine(session->state);
    snprintf(text, sizeof text, "%d.%s", machine->cuda_version / 1000, machine->driver_version);
    return session_text(text, version, size);
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    struct session *session;
    nvmlReturn_t result = session_get(&session);
    if (result != NVML_SUCCESS)
        return result;
    if (version == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *version = account_machine(session->state)->cuda_version;
    return NVML_SUCCESS;
}
ALSO(nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2);

API nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size)
{
    char path[32];
    char text[256];
    if (name == NULL || size == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return NVML_ERROR_NOT_FOUND;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0'; /* the first word: words end with a 0 */
    snprintf(name, size, "%s", text);
    return NVML_SUCCESS;
}

/* No unit of several GPUs, and no GPU that the driver was told to leave out. */
API nvmlReturn_t nvmlUnitGetCount(unsigned *count)
{
    struct session *session;
    nvmlReturn_t result = session_get(&session);
    if (result != NVML_SUCCESS)
        return result;
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    return NVML_SUCCESS;
}
ALSO(nvmlUnitGetCount, nvmlGetExcludedDeviceCount);
