/* The ways to take device memory: one row each. A way the driver lacks is not taken. */
#ifndef STORM_KINDS_H
#define STORM_KINDS_H

#include "driver.h"

#include <stdbool.h>

/* What was taken, for the way that took it to give back. */
struct block {
    const struct kind *kind;
    uint64_t bytes; /* that it holds of the device */
    device_address address;
};

/* granule: the device gives multiples of it. take: `bytes` is one; a CUDA result. */
struct kind {
    const char *name;
    uint64_t granule;
    bool (*there)(void);
    int (*take)(struct block *block, uint64_t bytes);
    int (*give)(struct block *block);
};

extern const struct kind kinds[];

/* How many of them the driver has; they come first in turn. */
unsigned kinds_count(void);

/* The n-th of those that the driver has. */
const struct kind *kinds_at(unsigned number);

#endif
