#include "nvml/occupants.h"
#include <stdlib.h>

static unsigned occupants_of(struct session *session, unsigned gpu,
                             struct sim_occupant out[OCCUPANTS])
{
    unsigned kept = 0;
    struct sim_occupant *all = calloc((size_t)SIM_PROCESSES * SIM_GPUS, sizeof *all);
    if (all == NULL)
        return 0;
    unsigned count = account_occupants(session->state, all, SIM_PROCESSES * SIM_GPUS);
    for (unsigned i = 0; i < count; i++)
        if (all[i].gpu == gpu && all[i].pid != 0 && kept < OCCUPANTS)
            out[kept++] = all[i];
    free(all);
    return kept;
}

nvmlReturn_t occupants_get(nvmlDevice_t device, const void *needed,
                           struct sim_occupant out[OCCUPANTS], unsigned *found)
{
    struct session *session;
    const struct sim_gpu *gpu;
    nvmlReturn_t result = session_gpu(device, needed, &session, &gpu);
    if (result == NVML_SUCCESS)
        *found = occupants_of(session, device->gpu, out);
    return result;
}

nvmlReturn_t occupants_fit(unsigned found, unsigned *count, const void *array)
{
    unsigned room = array != NULL ? *count : 0;
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
