/* The card that a GPU is on, and its link to the host. */
#include "nvml/session.h"
#include <stdio.h>
#include <string.h>

enum { SERIAL_TEXT_SIZE = 16, LINK_WIDTH = 16 };

/* By the first words of the name, as real drivers name their lines of products. */
API nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned *brand)
{
    static const struct {
        const char *begin;
        unsigned brand;
    } brands[] = {{"Tesla", 2}, {"Quadro", 1}, {"NVIDIA GeForce", 5}, {"NVIDIA RTX", 13}};
    enum { NVIDIA = 14 };
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, brand, &session, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    *brand = NVIDIA;
    for (unsigned i = 0; i < sizeof brands / sizeof *brands; i++)
        if (strncmp(gpu->name, brands[i].begin, strlen(brands[i].begin)) == 0)
            *brand = brands[i].brand;
    return NVML_SUCCESS;
}

/* Thirteen digits, made of the UUID, which is as unique. */
static void serial_text(const struct sim_gpu *gpu, char *text)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < sizeof gpu->uuid; i++)
        number = number * 257 + gpu->uuid[i];
    snprintf(text, SERIAL_TEXT_SIZE, "%013llu", (unsigned long long)(number % 10000000000000));
}

API nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned size)
{
    struct session *session;
    const struct sim_gpu *gpu;
    char text[SERIAL_TEXT_SIZE];
    nvmlReturn_t result = session_gpu(device, serial, &session, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    serial_text(gpu, text);
    return session_text(text, serial, size);
}

API nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *out)
{
    struct session *session;
    char text[SERIAL_TEXT_SIZE];
    nvmlReturn_t result = session_get(&session);
    if (result != NVML_SUCCESS)
        return result;
    if (serial == NULL || out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned device = 0; device < session->device_count; device++) {
        serial_text(&account_machine(session->state)->gpus[session->devices[device].gpu], text);
        if (strcmp(text, serial) == 0) {
            *out = &session->devices[device];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

API nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned *board)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, board, &session, &gpu);
    if (result == NVML_SUCCESS)
        *board = gpu->pci_domain << 16 | gpu->pci_bus << 8 | gpu->pci_device;
    return result;
}

API nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned *several)
{
    return session_number(device, several, 0);
}

API nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t device, unsigned *type)
{
    enum { PCIE = 2 };
    return session_number(device, type, PCIE);
}

API nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned *lanes)
{
    return session_number(device, lanes, LINK_WIDTH);
}
ALSO(nvmlDeviceGetCurrPcieLinkWidth, nvmlDeviceGetMaxPcieLinkWidth);

static uint64_t bandwidth_of(const struct sim_gpu *gpu)
{
    return gpu->link_bandwidth != 0 ? gpu->link_bandwidth : SIM_LINK_BANDWIDTH;
}

/* The first that carries the model's bandwidth on sixteen lanes: 3, 4 or 5. */
API nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned *generation)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, generation, &session, &gpu);
    if (result == NVML_SUCCESS)
        *generation = bandwidth_of(gpu) <= 16000000000   ? 3
                      : bandwidth_of(gpu) <= 32000000000 ? 4
                                                         : 5;
    return result;
}
ALSO(nvmlDeviceGetCurrPcieLinkGeneration, nvmlDeviceGetMaxPcieLinkGeneration);
ALSO(nvmlDeviceGetCurrPcieLinkGeneration, nvmlDeviceGetGpuMaxPcieLinkGeneration);
ALSO(nvmlDeviceGetCurrPcieLinkGeneration, nvmlDeviceGetPcieLinkMaxSpeed); /* numbered alike */

/* Of one lane: 8000 in the third generation, twice that in each one after it. */
API nvmlReturn_t nvmlDeviceGetPcieSpeed(nvmlDevice_t device, unsigned *megabits)
{
    nvmlReturn_t result = nvmlDeviceGetCurrPcieLinkGeneration(device, megabits);
    if (result == NVML_SUCCESS)
        *megabits = 1000U << *megabits;
    return result;
}

API nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned *replays)
{
    return session_number(device, replays, 0);
}

/* What crosses the link now: all it carries, or nothing. Real drivers tell the mean of 20 ms. */
API nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned counter,
                                             unsigned *kilobytes)
{
    enum { FROM_GPU = 0, TO_GPU = 1 };
    enum { ENGINE_TO_DEVICE = 0, ENGINE_TO_HOST = 1 };
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, kilobytes, &session, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (counter > TO_GPU)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned engine = counter == FROM_GPU ? ENGINE_TO_HOST : ENGINE_TO_DEVICE;
    bool copies = account_copies(session->state, device->gpu, engine);
    *kilobytes = copies ? (unsigned)(bandwidth_of(gpu) / 1000) : 0;
    return NVML_SUCCESS;
}
