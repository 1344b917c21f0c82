/* What every NVML hook begins with: may it look at the books, and which GPU is asked about.
 *
 * The driver's own exports call each other through the shim, so a call that its code makes from
 * inside of a hook goes straight to the driver. Any thread.
 */
#ifndef SHIM_NVML_OBSERVE_H
#define SHIM_NVML_OBSERVE_H

#include "nvml_hooks.h"
#include "runtime/session.h"

struct observation {
    const struct session *session; /* NULL: nothing to change, the driver's answer is the answer */
    int device;                    /* in the configuration; -1 if it is not of this container */
};

/* Where the hook in which this is written was called. */
#define HOOK_CALLER __builtin_return_address(0)

/* NVML_SUCCESS, and then observe_end() must follow; NVML_ERROR_DRIVER_NOT_LOADED if limits cannot
 * be known. Between the two the driver may be called. caller: HOOK_CALLER. */
nvmlReturn_t observe_begin(struct observation *observation, nvmlDevice_t device,
                           const void *caller);
void observe_end(void);

#endif
