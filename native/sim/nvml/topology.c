/* How GPUs are connected: the PCIe level at which they meet, and NVLinks.
 *
 * Where every pair of more than two GPUs has the same number of links they run to switches, as on
 * boards with NVSwitch; otherwise each link ends at a GPU, those to the first GPU coming first.
 */
#include "nvml/pci.h"
#include "nvml/session.h"

enum { MOST_LINKS = 18, TO_GPU = 0, TO_SWITCH = 2 };
enum { INTERNAL = 0, ACTIVE = 1, SWITCH_BUS = 0xc0 };

static nvmlReturn_t pair(nvmlDevice_t a, nvmlDevice_t b, const void *out,
                         const struct sim_machine **machine)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(a, out, &session, &gpu);
    if (result == NVML_SUCCESS)
        result = session_gpu(b, out, &session, &gpu);
    if (result == NVML_SUCCESS && session->state->faults.machine.no_topology)
        result = NVML_ERROR_NOT_SUPPORTED;
    if (result == NVML_SUCCESS)
        *machine = account_machine(session->state);
    return result;
}

API nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b,
                                                     unsigned *level)
{
    const struct sim_machine *machine;
    nvmlReturn_t result = pair(a, b, level, &machine);
    if (result == NVML_SUCCESS)
        *level = machine->level[a->gpu][b->gpu];
    return result;
}

API nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t a, nvmlDevice_t b, int *same)
{
    const struct sim_machine *machine;
    nvmlReturn_t result = pair(a, b, same, &machine);
    if (result == NVML_SUCCESS)
        *same = machine->level[a->gpu][b->gpu] == INTERNAL;
    return result;
}

API nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, int index, int *status)
{
    enum { BY_NVLINK = 2, STATUS_OK = 0, STATUS_NOT_SUPPORTED = 5 };
    const struct sim_machine *machine;
    nvmlReturn_t result = pair(a, b, status, &machine);
    if (result != NVML_SUCCESS)
        return result;
    bool missing = index == BY_NVLINK && machine->nvlinks[a->gpu][b->gpu] == 0;
    *status = missing ? STATUS_NOT_SUPPORTED : STATUS_OK;
    return NVML_SUCCESS;
}

/* Links of each GPU to switches; 0 where links run from GPU to GPU. */
static unsigned switch_links(const struct sim_machine *machine)
{
    unsigned links = machine->nvlinks[0][1];
    if (machine->gpu_count <= 2)
        return 0;
    for (unsigned a = 0; a < machine->gpu_count; a++)
        for (unsigned b = 0; b < a; b++)
            if (machine->nvlinks[a][b] != links)
                return 0;
    return links;
}

/* Which GPU a link ends at; -1 when there is no such link. */
static int far_gpu(const struct sim_machine *machine, unsigned gpu, unsigned link)
{
    for (unsigned other = 0; other < machine->gpu_count; other++) {
        unsigned links = machine->nvlinks[gpu][other];
        if (link < links)
            return (int)other;
        link -= links;
    }
    return -1;
}

static unsigned link_count(const struct sim_machine *machine, unsigned gpu)
{
    unsigned links = switch_links(machine);
    if (links > 0)
        return links;
    for (unsigned other = 0; other < machine->gpu_count; other++)
        links += machine->nvlinks[gpu][other];
    return links;
}

/* The machine, for a link that is there. */
static nvmlReturn_t linked(nvmlDevice_t device, unsigned link, const void *out,
                           const struct sim_machine **machine)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, out, &session, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    *machine = account_machine(session->state);
    if (link >= MOST_LINKS)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned links = link_count(*machine, device->gpu);
    if (links == 0 || session->state->faults.machine.no_topology)
        return NVML_ERROR_NOT_SUPPORTED;
    return link < links ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *state)
{
    const struct sim_machine *machine;
    nvmlReturn_t result = linked(device, link, state, &machine);
    if (result == NVML_SUCCESS)
        *state = ACTIVE;
    return result;
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link,
                                                     unsigned *type)
{
    const struct sim_machine *machine;
    nvmlReturn_t result = linked(device, link, type, &machine);
    if (result == NVML_SUCCESS)
        *type = switch_links(machine) > 0 ? TO_SWITCH : TO_GPU;
    return result;
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link,
                                                     nvmlPciInfo_t *pci)
{
    const struct sim_machine *machine;
    nvmlReturn_t result = linked(device, link, pci, &machine);
    if (result != NVML_SUCCESS)
        return result;
    struct sim_gpu far = {.pci_bus = SWITCH_BUS + link / 2}; /* two links to each switch */
    if (switch_links(machine) == 0)
        far = machine->gpus[far_gpu(machine, device->gpu, link)];
    pci_describe(&far, pci);
    return NVML_SUCCESS;
}
ALSO(nvmlDeviceGetNvLinkRemotePciInfo_v2, nvmlDeviceGetNvLinkRemotePciInfo);
