/* NVML's accounting of processes, where an administrator has turned it on: of the container's
 * processes alone. Those that have ended are in no books and so are nobody's.
 */
#include "nvml/listing.h"

#include <stdlib.h>

static const struct residents_layout pid_alone = {.size = sizeof(unsigned int), .pid = 0};

static nvmlReturn_t ask_pids(const struct listing *listing, unsigned int *count, void *list)
{
    return REAL(nvmlDeviceGetAccountingPids)(listing->device, count, list);
}

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count,
                                         unsigned int *pids)
{
    struct observation seen;
    struct listing listing = {.ask = ask_pids, .device = device, .layout = &pid_alone};
    nvmlReturn_t result = observe_begin(&seen, device, HOOK_CALLER);
    if (result != NVML_SUCCESS)
        return result;
    result = seen.session == NULL || count == NULL
                 ? REAL(nvmlDeviceGetAccountingPids)(device, count, pids)
                 : listing_answer(&listing, &seen, count, pids);
    observe_end();
    return result;
}

/* By what pid the driver accounts for a process the container names `pid`; 0 if it is not its. */
static nvmlReturn_t name_for_driver(const struct observation *seen, nvmlDevice_t device,
                                    unsigned int *pid)
{
    struct residents residents;
    struct listing listing = {.ask = ask_pids, .device = device, .layout = &pid_alone};
    nvmlReturn_t result = listing_fetch(&listing, seen, &residents);
    if (result != NVML_SUCCESS)
        return result;
    *pid = residents_pid_of(residents.books, *pid, residents_naming(&residents));
    free(residents.list);
    return *pid == 0 ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
                                          nvmlAccountingStats_t *stats)
{
    struct observation seen;
    nvmlReturn_t result = observe_begin(&seen, device, HOOK_CALLER);
    if (result != NVML_SUCCESS)
        return result;
    if (seen.session != NULL)
        result = name_for_driver(&seen, device, &pid);
    if (result == NVML_SUCCESS)
        result = REAL(nvmlDeviceGetAccountingStats)(device, pid, stats);
    observe_end();
    return result;
}
