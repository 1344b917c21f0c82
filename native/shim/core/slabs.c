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

/* The mutex is held, as in all that follows. */
static uint64_t *places_of(struct slabs *slabs, struct slab_key key)
{
    return &slabs->places[key.device][key.kind][class_of(key.bytes)];
}

static bool array_fits(const uint64_t *arrays, struct slab_key key)
{
    return *arrays % places_in(class_of(key.bytes)) != 0;
}

bool slabs_room(struct slabs *slabs, struct slab_key key)
{
    pthread_mutex_lock(&slabs->mutex);
    const uint64_t *places = places_of(slabs, key);
    bool room = key.kind == POINTER_ARRAY ? array_fits(places, key) : *places > 0;
    pthread_mutex_unlock(&slabs->mutex);
    return room;
}

static void lower(uint64_t *places, uint64_t by)
{
    *places -= *places < by ? *places : by;
}

/* Which page of those of the device. No page begins at 0. */
static uint64_t page_of(struct slab_key key, uint64_t address)
{
    return (address / SLAB_PAGE + 1) * VCUDA_DEVICES + key.device;
}

static int enter(struct slabs *slabs, struct slab_key key, uint64_t address)
{
    uint64_t class = class_of(key.bytes), *places = places_of(slabs, key);
    struct pointer page = {.address = page_of(key, address), .device = key.device, .owner = class};
    bool known = pointers_find(&slabs->pages, page.address, &page) == 0;
    page.bytes++;
    if (pointers_add(&slabs->pages, page) != 0)
        return -ENOMEM;
    if (known)
        lower(places, 1);
    else
        *places += places_in(class) - 1;
    return !known;
}

int slabs_enter(struct slabs *slabs, struct slab_key key, uint64_t address)
{
    pthread_mutex_lock(&slabs->mutex);
    int taken;
    if (key.kind == POINTER_ARRAY) {
        uint64_t *arrays = places_of(slabs, key);
        taken = !array_fits(arrays, key);
        ++*arrays;
    } else {
        taken = enter(slabs, key, address);
    }
    pthread_mutex_unlock(&slabs->mutex);
    return taken;
}

static bool leave(struct slabs *slabs, struct slab_key key, uint64_t address)
{
    struct pointer page;
    uint64_t *places = places_of(slabs, key);
    if (pointers_take(&slabs->pages, page_of(key, address), &page) != 0)
        return false;
    if (--page.bytes > 0) {
        pointers_add(&slabs->pages, page); /* what was taken out finds room to be put in again */
        ++*places;
        return false;
    }
    lower(&slabs->places[key.device][key.kind][page.owner], places_in(page.owner) - 1);
    return true;
}

bool slabs_leave(struct slabs *slabs, struct slab_key key, uint64_t address)
{
    pthread_mutex_lock(&slabs->mutex);
    bool gone;
    if (key.kind == POINTER_ARRAY) {
        uint64_t *arrays = places_of(slabs, key);
        lower(arrays, 1);
        gone = !array_fits(arrays, key);
    } else {
        gone = leave(slabs, key, address);
    }
    pthread_mutex_unlock(&slabs->mutex);
    return gone;
}

void slabs_clear(struct slabs *slabs)
{
    pointers_clear(&slabs->pages);
}
