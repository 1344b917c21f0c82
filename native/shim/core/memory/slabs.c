#include "core/memory/slabs.h"

#include <errno.h>

/* What is known of one size of places, on one device, of one kind; one word, changed as a whole. */
union slab_class {
    uint64_t word;
    struct {
        int64_t left : 26;    /* places in pages that the driver has; below 0 where it divides them
                                 otherwise */
        uint64_t claims : 13; /* requests under way: no process has so many threads */
        uint64_t frees : 13;  /* frees under way */
        uint64_t paid : 12;   /* pages that are charged, and empty as far as is known */
    };
    struct {
        uint32_t arrays; /* those under way, too */
        uint32_t pages;  /* charged for them */
    };
};

static unsigned class_of(uint64_t bytes)
{
    unsigned class = 0;
    while (class < SLAB_CLASSES - 1 && ((uint64_t)SLAB_PLACE_LEAST << class) < bytes)
        class++;
    return class;
}

static uint32_t places_in(unsigned class)
{
    return (uint32_t)(SLAB_PAGE / ((uint64_t)SLAB_PLACE_LEAST << class));
}

/* All that can happen. Each returns by how many pages the charge is to change. */
typedef int (*event)(union slab_class *of, uint32_t places);

static int change_to(struct slabs *slabs, struct slab_key key, unsigned class, event event,
                     union slab_class *after)
{
    _Atomic uint64_t *word = &slabs->classes[key.device][key.kind][class];
    union slab_class now, next;
    int pages;
    /* relaxed: pages are charged by the books' own words */
    now.word = atomic_load_explicit(word, memory_order_relaxed);
    do {
        next = now;
        pages = event(&next, places_in(class));
    } while (!atomic_compare_exchange_weak_explicit(word, &now.word, next.word,
                                                    memory_order_relaxed, memory_order_relaxed));
    *after = next;
    return pages;
}

static int change(struct slabs *slabs, struct slab_key key, unsigned class, event event)
{
    union slab_class after;
    return change_to(slabs, key, class, event, &after);
}

/* Pages that nobody needs. Each request and each free under way may be in a page of its own that
 * the driver has and we do not know of. Example: the last two in a full page are being freed, so
 * that it is empty as far as is known; a request that comes first makes the driver take another. */
static int spare(union slab_class *of)
{
    int pages = 0;
    while (of->paid > of->claims + of->frees) {
        of->paid--;
        pages--;
    }
    return pages;
}

/* What is being freed may fill a page, or the place in it that counts as left. */
static int claim(union slab_class *of, uint32_t places)
{
    uint64_t pages = of->paid > of->frees ? of->paid - of->frees : 0;
    int64_t left = of->left - (int64_t)of->frees;
    if (of->claims >= (left > 0 ? (uint64_t)left : 0) + pages * places)
        return 1;
    of->claims++;
    return 0;
}

static int pay(union slab_class *of, uint32_t places)
{
    (void)places;
    of->claims++;
    of->paid++;
    return 0;
}

static int give_up(union slab_class *of, uint32_t places)
{
    of->claims -= of->claims > 0 ? 1 : 0;
    (void)places;
    return spare(of);
}

static int enter_known_page(union slab_class *of, uint32_t places)
{
    of->left--;
    return give_up(of, places);
}

static int enter_new_page(union slab_class *of, uint32_t places)
{
    int more = of->paid == 0 ? 1 : 0;
    of->paid -= of->paid > 0 ? 1 : 0;
    of->left += (int32_t)places - 1;
    return more + give_up(of, places);
}

static int begin_free(union slab_class *of, uint32_t places)
{
    (void)places;
    of->frees++;
    return 0;
}

static int begin_last_free(union slab_class *of, uint32_t places)
{
    of->left -= (int32_t)places - 1;
    of->paid++;
    return begin_free(of, places);
}

static int end_last_free(union slab_class *of, uint32_t places)
{
    of->frees -= of->frees > 0 ? 1 : 0;
    (void)places;
    return spare(of);
}

static int end_free(union slab_class *of, uint32_t places)
{
    of->left++;
    return end_last_free(of, places);
}

static int claim_array(union slab_class *of, uint32_t places)
{
    if (of->arrays >= of->pages * places)
        return 1;
    of->arrays++;
    return 0;
}

/* Another thread has paid for a page meanwhile, perhaps, in which there is a place. */
static int pay_array(union slab_class *of, uint32_t places)
{
    of->arrays++;
    if (of->arrays <= of->pages * places)
        return -1;
    of->pages++;
    return 0;
}

static int leave_array(union slab_class *of, uint32_t places)
{
    (void)places;
    of->arrays -= of->arrays > 0;
    if (of->pages <= of->arrays)
        return 0;
    of->pages--;
    return -1;
}

bool slabs_claim(struct slabs *slabs, struct slab_key key)
{
    return change(slabs, key, class_of(key.bytes),
                  key.kind == POINTER_ARRAY ? claim_array : claim) == 0;
}

int slabs_pay(struct slabs *slabs, struct slab_key key)
{
    return -change(slabs, key, class_of(key.bytes), key.kind == POINTER_ARRAY ? pay_array : pay);
}

/* Which page of those of the device. No page begins at 0. */
static uint64_t page_of(struct slab_key key, uint64_t address)
{
    return (address / SLAB_PAGE + 1) * VCUDA_DEVICES + key.device;
}

int slabs_enter(struct slabs *slabs, struct slab_key key, uint64_t address, int *pages)
{
    *pages = 0;
    if (key.kind == POINTER_ARRAY)
        return 0;
    unsigned class = class_of(key.bytes);
    struct pointer known,
        page = {.address = page_of(key, address), .device = key.device, .owner = class};
    pthread_mutex_lock(&slabs->mutex);
    int taken = pointers_count(&slabs->pages, page, &known);
    if (taken >= 0)
        *pages = change(slabs, key, class, taken > 0 ? enter_new_page : enter_known_page);
    pthread_mutex_unlock(&slabs->mutex);
    return taken < 0 ? taken : 0;
}

int slabs_give_up(struct slabs *slabs, struct slab_key key)
{
    return -change(slabs, key, class_of(key.bytes),
                   key.kind == POINTER_ARRAY ? leave_array : give_up);
}

int slabs_leave_begin(struct slabs *slabs, struct slab_key key, uint64_t address)
{
    struct pointer page;
    if (key.kind == POINTER_ARRAY)
        return SLAB_STAYS;
    pthread_mutex_lock(&slabs->mutex);
    int gone = pointers_uncount(&slabs->pages, page_of(key, address), &page);
    if (gone == 0)
        change(slabs, key, class_of(key.bytes), begin_free);
    else if (gone > 0)
        change(slabs, key, (unsigned)page.owner, begin_last_free);
    pthread_mutex_unlock(&slabs->mutex);
    return gone > 0 ? (int)page.owner : gone == 0 ? SLAB_STAYS : SLAB_UNKNOWN;
}

int slabs_leave_end(struct slabs *slabs, struct slab_key key, int slab)
{
    if (key.kind == POINTER_ARRAY)
        return slabs_give_up(slabs, key);
    if (slab == SLAB_UNKNOWN)
        return 0;
    return -(slab == SLAB_STAYS ? change(slabs, key, class_of(key.bytes), end_free)
                                : change(slabs, key, (unsigned)slab, end_last_free));
}

int slabs_leave_array(struct slabs *slabs, struct slab_key key, bool *unsure)
{
    union slab_class after;
    int pages = -change_to(slabs, key, class_of(key.bytes), leave_array, &after);
    *unsure = pages > 0 && after.arrays > 0;
    return pages;
}

int slabs_leave(struct slabs *slabs, struct slab_key key, uint64_t address)
{
    return slabs_leave_end(slabs, key, slabs_leave_begin(slabs, key, address));
}

void slabs_clear(struct slabs *slabs)
{
    pointers_clear(&slabs->pages);
}
