/* In which pages the driver takes memory, as far as that can be told from outside.
 *
 * An allocation larger than SLAB_MOST takes whole pages of SLAB_PAGE bytes. Smaller ones share
 * pages: such a page is called a slab here. Addresses tell which allocations are in one slab: they
 * lie in the same SLAB_PAGE bytes, and the slab goes when the last of them is freed. So a process
 * is charged for each slab, whatever the driver's rule is for dividing them. Arrays have no
 * addresses: theirs are taken to be divided into places of one power of two, full but for the last.
 *
 * Before the driver is asked it is not known whether it will take a new page. slabs_room() is a
 * guess, by how many places of that size those known have left: where it says no, a page is
 * reserved before; where it says yes and is wrong, after.
 *
 * Any thread. Knows neither CUDA nor books. All zero is a valid beginning.
 */
#ifndef SHIM_CORE_SLABS_H
#define SHIM_CORE_SLABS_H

#include "core/pointers.h"
#include "vcuda_region.h"

#ifndef VCUDA_CDEF
#include <stdatomic.h>
#include <stdbool.h>
#endif

#define SLAB_PAGE (UINT64_C(2) << 20)
#define SLAB_MOST (UINT64_C(1) << 20)

enum {
    SLAB_PLACE_LEAST = 4096, /* drivers divide more finely: then a guess says no too often */
    SLAB_CLASSES = 9,        /* places of 4 KiB to 1 MiB */
};

/* What an allocation of some bytes shares pages with: those of the same device and kind. */
struct slab_key {
    unsigned device;        /* index in the configuration */
    enum pointer_kind kind; /* POINTER_ARRAY, or another */
    uint64_t bytes;         /* at most SLAB_MOST */
};

struct slabs {
    struct pointers pages; /* address → allocations in it (bytes), class (owner) */
#ifdef VCUDA_CDEF
    ...;
#else
    /* places left in known pages; a hint */
    _Atomic uint64_t places[VCUDA_DEVICES][POINTER_KINDS][SLAB_CLASSES];
    uint64_t arrays[VCUDA_DEVICES][SLAB_CLASSES];
    pthread_mutex_t mutex; /* guards the arrays */
#endif
};

#ifndef VCUDA_CDEF
/* Whole pages; UINT64_MAX for more than can be. */
static inline uint64_t slab_whole(uint64_t bytes)
{
    return bytes > UINT64_MAX - SLAB_PAGE ? UINT64_MAX
                                          : (bytes + SLAB_PAGE - 1) / SLAB_PAGE * SLAB_PAGE;
}
#endif

/* Is the driver expected to have room for it in a page that it has already? */
bool slabs_room(struct slabs *slabs, struct slab_key key);

/* The driver gave it out at `address`: 1 if that took a page, 0 if not, -ENOMEM and nothing is
 * known of it. */
int slabs_enter(struct slabs *slabs, struct slab_key key, uint64_t address);

/* It was freed: did its page go with it? */
bool slabs_leave(struct slabs *slabs, struct slab_key key, uint64_t address);

/* Forget all and give the memory back; nobody else may use it then. */
void slabs_clear(struct slabs *slabs);

#endif
