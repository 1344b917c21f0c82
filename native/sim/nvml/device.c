/* Which GPUs there are and what they are. */
#include "core/uuid.h"
#include "nvml/pci.h"
#include "nvml/session.h"
#include <stdio.h>
#include <string.h>

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    struct session *session;
    nvmlReturn_t result = session_get(&session);
    if (result != NVML_SUCCESS)
        return result;
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = session->device_count;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetCount(unsigned *count)
{
    return nvmlDeviceGetCount_v2(count);
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out)
{
    struct session *session;
    nvmlReturn_t result = session_get(&session);
    if (result != NVML_SUCCESS)
        return result;
    if (out == NULL || index >= session->device_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *out = &session->devices[index];
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *out)
{
    return nvmlDeviceGetHandleByIndex_v2(index, out);
}

/* The handle whose text, as `write` writes it, is the wanted one, or the wanted one without the
 * first `optional` characters. */
static nvmlReturn_t find(const char *wanted, size_t optional, nvmlDevice_t *out,
                         void (*write)(const struct sim_gpu *, char *))
{
    struct session *session;
    nvmlReturn_t result = session_get(&session);
    if (result != NVML_SUCCESS)
        return result;
    if (wanted == NULL || out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned device = 0; device < session->device_count; device++) {
        char text[PCI_TEXT_SIZE + UUID_TEXT_SIZE];
        write(&account_machine(session->state)->gpus[session->devices[device].gpu], text);
        if (strcasecmp(text, wanted) != 0 && strcasecmp(text + optional, wanted) != 0)
            continue;
        *out = &session->devices[device];
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}

static void write_uuid(const struct sim_gpu *gpu, char *text)
{
    uuid_text(gpu->uuid, text);
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out)
{
    return find(uuid, 0, out, write_uuid);
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *out)
{
    return find(bus_id, 4, out, pci_text);
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *out)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, out);
}

API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, index, &session, &gpu);
    if (result == NVML_SUCCESS)
        *index = (unsigned)(device - session->devices);
    return result;
}

API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, minor, &session, &gpu);
    if (result == NVML_SUCCESS)
        *minor = gpu->minor;
    return result;
}

API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned size)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, name, &session, &gpu);
    return result == NVML_SUCCESS ? session_text(gpu->name, name, size) : result;
}

API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned size)
{
    struct session *session;
    const struct sim_gpu *gpu;
    char text[UUID_TEXT_SIZE];
    nvmlReturn_t result = session_gpu(device, uuid, &session, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    uuid_text(gpu->uuid, text);
    return session_text(text, uuid, size);
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, pci, &session, &gpu);
    if (result == NVML_SUCCESS)
        pci_describe(gpu, pci);
    return result;
}

/* The first versions end before the long bus id. */
API nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    nvmlPciInfo_t whole;
    nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(device, pci != NULL ? &whole : NULL);
    if (result == NVML_SUCCESS)
        memcpy(pci, &whole, offsetof(nvmlPciInfo_t, busId));
    return result;
}

API nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetPciInfo_v2(device, pci);
}

API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, major, &session, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (minor == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *major = (int)gpu->capability_major;
    *minor = (int)gpu->capability_minor;
    return NVML_SUCCESS;
}

/* NVML numbers architectures; Turing and Ada share a major version with their neighbours. */
API nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned *architecture)
{
    enum { PASCAL = 4, VOLTA, TURING, AMPERE, ADA, HOPPER, BLACKWELL, UNKNOWN = -1 };
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, architecture, &session, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    unsigned capability = 10 * gpu->capability_major + gpu->capability_minor;
    *architecture = capability >= 100  ? BLACKWELL
                    : capability >= 90 ? HOPPER
                    : capability == 89 ? ADA
                    : capability >= 80 ? AMPERE
                    : capability >= 75 ? TURING
                    : capability >= 70 ? VOLTA
                    : capability >= 60 ? PASCAL
                                       : (unsigned)UNKNOWN;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned *node)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, node, &session, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (gpu->numa_node == SIM_NOWHERE)
        return NVML_ERROR_NOT_SUPPORTED;
    *node = (unsigned)gpu->numa_node;
    return NVML_SUCCESS;
}
