/* One list of the driver's, read whole and handed on as the container may see it.
 *
 * NVML's way with lists: the caller brings an array and its length; if that is too short, or there
 * is no array, the answer is the length needed and NVML_ERROR_INSUFFICIENT_SIZE. What the driver
 * lists and what the caller gets differ in length, so the driver fills an array of ours first.
 */
#ifndef SHIM_NVML_LISTING_H
#define SHIM_NVML_LISTING_H

#include "core/memory/residents.h"
#include "nvml/observe.h"

/* Ask the driver: *count entries may go to `list`; sets *count as the driver does. */
struct listing {
    nvmlReturn_t (*ask)(const struct listing *listing, unsigned int *count, void *list);
    nvmlDevice_t device;
    const struct residents_layout *layout;
    bool add_hidden;      /* also who holds memory and is not listed */
    nvmlReturn_t if_none; /* what NVML answers where nobody is left */
    nvmlReturn_t (*list)(nvmlDevice_t device, unsigned int *count, void *list); /* for `ask` */
    const void *details;                                                        /* for `ask` */
};

/* The driver's list of this observation, unsifted, with room for VCUDA_SLOTS entries more; the
 * caller frees `residents->list`. The driver's error, and then there is nothing to free. */
nvmlReturn_t listing_fetch(const struct listing *listing, const struct observation *seen,
                           struct residents *residents);

/* What a hook answers. `seen` has a session; `count` is not NULL. Out-parameters are untouched on
 * failure, but for *count with NVML_ERROR_INSUFFICIENT_SIZE. */
nvmlReturn_t listing_answer(const struct listing *listing, const struct observation *seen,
                            unsigned int *count, void *list);

#endif
