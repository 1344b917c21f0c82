/* The ways to take device memory: one row each. A way the driver lacks is not taken. */
#ifndef PROGRAMS_CUDA_STORM_KINDS_H
#define PROGRAMS_CUDA_STORM_KINDS_H

#include "driver.h"

#include <stdbool.h>

/* In what the device takes memory: what is small may have one to itself. */
#define DEVICE_PAGE (UINT64_C(2) << 20)

/* What was taken, for the way that took it to give back. */
struct block {
    const struct kind *kind;
    uint64_t bytes; /* as asked for */
    uint64_t holds; /* of the device, at most; while it is asked for, what that may take */
    device_address address;
    void *object, *maker; /* whose memory it is, and what that was made from */
};

/* What was taken is given back whole: nothing of it stays with a pool or a graph, unless others of
 * the process still need the piece it lies in.
 *
 * granule: requests are multiples of it. most: bytes of a request; 0 for any number. rough, fine:
 * the device may take a multiple of the one for a request; when it has answered, it has taken a
 * multiple of the other at most. uncounted: nobody can say how much it takes. take: a CUDA result.
 */
struct kind {
    const char *name;
    bool (*there)(void);
    int (*take)(struct block *block, uint64_t bytes);
    int (*give)(struct block *block);
    uint64_t granule, most, rough, fine;
    bool uncounted;
};

/* A set of kinds, a bit for each. kinds_called: names with commas between; 0 if one is unknown. */
uint64_t kinds_countable(void);
uint64_t kinds_called(const char *names);
bool kinds_uncounted(uint64_t set);

/* Those of a set that the driver has: how many there are, and the n-th. */
unsigned kinds_count(uint64_t set);
const struct kind *kinds_at(uint64_t set, unsigned number);

/* A request of this kind, of about so many bytes. */
struct block kinds_ask(const struct kind *kind, uint64_t bytes);

/* The driver has taken it. Returns what it did not need, of what it might have. */
uint64_t kinds_settle(struct block *block);

/* Small arrays share pages of the device, and have no address that tells which: the shim may charge
 * more pages than they lie in. */
bool kinds_small_array(const struct block *block);

#define KINDS_ADDRESS(KIND) KIND(plain) KIND(managed) KIND(pitch) KIND(virtual)
#define KINDS_LEGACY(KIND) KIND(plain32) KIND(pitch32)
#define KINDS_ARRAY(KIND) KIND(array) KIND(array3d) KIND(mipmap)
#define KINDS_POOL(KIND) KIND(async) KIND(pool) KIND(graph)
#define KINDS_DRIVER(KIND) KIND(context) KIND(module)

#define DECLARE_KIND(name) extern const struct kind kind_##name;
KINDS_ADDRESS(DECLARE_KIND)
KINDS_LEGACY(DECLARE_KIND)
KINDS_ARRAY(DECLARE_KIND)
KINDS_POOL(DECLARE_KIND)
KINDS_DRIVER(DECLARE_KIND)
#undef DECLARE_KIND

#endif
