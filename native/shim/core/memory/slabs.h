/* In which pages the driver takes memory, as far as that can be told from outside.
 *
 * An allocation larger than SLAB_MOST takes whole pages of SLAB_PAGE bytes. Smaller ones share
 * pages: such a page is called a slab here. Addresses tell which allocations are in one slab: they
 * lie in the same SLAB_PAGE bytes, and the slab goes when the last of them is freed. So a process
 * is charged for each slab, whatever the driver's rule is for dividing them.
 *
 * Before the driver is asked it is not known whether it will take a new page. So each request first
 * claims a place in a page that is charged already, or reserves a page (slabs_pay). What is claimed
 * stays charged: example, of two threads that see one place left, one has it and the other pays;
 * and where the last allocation of a page is freed while a place in it is claimed, the page stays
 * charged for the claim, since the driver will take another. Only where the driver divides pages
 * otherwise than is assumed here, it takes a page that has to be paid after.
 *
 * Arrays have no addresses: which of them share a page nobody knows. They are charged as many pages
 * as they may lie in after any frees: no fewer than before, unless there are fewer arrays than
 * that.
 *
 * Any thread. Knows neither CUDA nor books. All zero is a valid beginning.
 */
#ifndef SHIM_CORE_MEMORY_SLABS_H
#define SHIM_CORE_MEMORY_SLABS_H

#include "core/memory/pointers.h"
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
    _Atomic uint64_t classes[VCUDA_DEVICES][POINTER_KINDS][SLAB_CLASSES]; /* union slab_class */
    pthread_mutex_t mutex; /* of a page and its class: one changes with the other */
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

/* Claim a place in a page that is charged already. Returns whether there is one; else a page is to
 * be reserved, and slabs_pay() called, which returns how many pages are to be given back: 1 where
 * there is a place by now. */
bool slabs_claim(struct slabs *slabs, struct slab_key key);
int slabs_pay(struct slabs *slabs, struct slab_key key);

/* The driver gave out, at `address`, what was claimed or paid for. `pages`: 1 if one more is to be
 * charged, below 0 if so many are to be given back. Returns 0, or -ENOMEM: nothing is known of it,
 * and the claim stands. */
int slabs_enter(struct slabs *slabs, struct slab_key key, uint64_t address, int *pages);

/* The driver did not. Returns how many pages are to be given back. */
int slabs_give_up(struct slabs *slabs, struct slab_key key);

/* Around a free, once for each address that was entered. begin: in which slab it was, for the end.
 * end: returns how many pages are to be given back. A page that is empty stays charged in between:
 * example, the driver has dropped it, and taken another for a request that had claimed a place in
 * it. */
enum { SLAB_UNKNOWN = -2, SLAB_STAYS = -1 };
int slabs_leave_begin(struct slabs *slabs, struct slab_key key, uint64_t address);
int slabs_leave_end(struct slabs *slabs, struct slab_key key, int slab);

/* The same of an array. unsure: those that are left lay in fewer pages than were charged, perhaps,
 * so that the driver gave none back. */
int slabs_leave_array(struct slabs *slabs, struct slab_key key, bool *unsure);

/* Both, of what was freed some time ago. */
int slabs_leave(struct slabs *slabs, struct slab_key key, uint64_t address);

/* Forget all and give the memory back; nobody else may use it then. */
void slabs_clear(struct slabs *slabs);

#endif
