#include "core/slabs.h"

#include <errno.h>

static unsigned class_of(uint64_t bytes)
{
    unsigned class = 0;
    while (class < SLAB_CLASSES - 1 && ((uint64_t)SLAB_PLACE_LEAST << class) < bytes)
        class++;
    return class;
}

static uint64_t places_in(uint64_t class)
{
    return SLAB_PAGE / ((uint64_t)SLAB_PLACE_LEAST << class);
}

static bool array_fits(uint64_t arrays, struct slab_key key)
{
    return arrays % places_in(class_of(key.bytes)) != 0;
}

/* One more, or one less: does that take a page, or give it back? */
static bool count_array(struct slabs *slabs, struct slab_key key, bool more)
{
    pthread_mutex_lock(&slabs->mutex);
    uint64_t *arrays = &slabs->arrays[key.device][class_of(key.bytes)];
    if (!more && *arrays > 0)
        --*arrays;
    bool whole = !array_fits(*arrays, key);
    *arrays += more;
    pthread_mutex_unlock(&slabs->mutex);
    return whole;
}

static bool array_room(struct slabs *slabs, struct slab_key key)
{
    pthread_mutex_lock(&slabs->mutex);
    bool room = array_fits(slabs->arrays[key.device][class_of(key.bytes)], key);
    pthread_mutex_unlock(&slabs->mutex);
    return room;
}

static _Atomic uint64_t *places_of(struct slabs *slabs, struct slab_key key, uint64_t class)
{
    return &slabs->places[key.device][key.kind][class];
}

bool slabs_room(struct slabs *slabs, struct slab_key key)
{
    if (key.kind == POINTER_ARRAY)
        return array_room(slabs, key);
    /* relaxed, here and below: a hint */
    return atomic_load_explicit(places_of(slabs, key, class_of(key.bytes)), memory_order_relaxed) >
           0;
}

static void lower(_Atomic uint64_t *places, uint64_t by)
{
    uint64_t old = atomic_load_explicit(places, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(places, &old, old > by ? old - by : 0,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

/* Which page of those of the device. No page begins at 0. */
static uint64_t page_of(struct slab_key key, uint64_t address)
{
    return (address / SLAB_PAGE + 1) * VCUDA_DEVICES + key.device;
}

int slabs_enter(struct slabs *slabs, struct slab_key key, uint64_t address)
{
    if (key.kind == POINTER_ARRAY)
        return count_array(slabs, key, true);
    uint64_t class = class_of(key.bytes);
    struct pointer known,
        page = {.address = page_of(key, address), .device = key.device, .owner = class};
    int taken = pointers_count(&slabs->pages, page, &known);
    if (taken == 0)
        lower(places_of(slabs, key, class), 1);
    else if (taken > 0)
        atomic_fetch_add_explicit(places_of(slabs, key, class), places_in(class) - 1,
                                  memory_order_relaxed);
    return taken;
}

bool slabs_leave(struct slabs *slabs, struct slab_key key, uint64_t address)
{
    struct pointer page;
    if (key.kind == POINTER_ARRAY)
        return count_array(slabs, key, false);
    int gone = pointers_uncount(&slabs->pages, page_of(key, address), &page);
    if (gone == 0)
        atomic_fetch_add_explicit(places_of(slabs, key, class_of(key.bytes)), 1,
                                  memory_order_relaxed);
    else if (gone > 0)
        lower(places_of(slabs, key, page.owner), places_in(page.owner) - 1);
    return gone > 0;
}

void slabs_clear(struct slabs *slabs)
{
    pointers_clear(&slabs->pages);
}
