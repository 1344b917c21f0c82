#include "core/memory/physical.h"

#include "core/heap.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PLACEMENTS_FIRST = 64 };

/* What is bound to an object: a reference to it. */
struct binding {
    struct binding *next;
    uint64_t offset;
    uint64_t bytes;
    struct physical *physical;
};

struct physical *physicals_new(unsigned device, uint64_t bytes)
{
    struct physical *physical = heap_kept(calloc(1, sizeof *physical));
    if (physical != NULL)
        *physical = (struct physical){.device = device, .bytes = bytes, .references = 1};
    return physical;
}

/* Drop a reference; what is gone with the last one is put before `gone`. */
static struct physical *drop(struct physical *physical, struct physical *gone)
{
    if (--physical->references > 0)
        return gone;
    physical->next = gone;
    return physical;
}

/* What is bound to an object that others know stays in the driver: so it stays charged. */
static struct physical *drop_bindings(struct physical *object, struct physical *gone)
{
    while (object->bindings != NULL) {
        struct binding *binding = object->bindings;
        object->bindings = binding->next;
        if (!object->foreign)
            gone = drop(binding->physical, gone);
        free(binding);
    }
    return gone;
}

struct physical *physicals_drop(struct physicals *physicals, struct physical *physical)
{
    pthread_mutex_lock(&physicals->mutex);
    struct physical *gone = drop(physical, NULL);
    for (struct physical *each = gone; each != NULL; each = each->next)
        each->next = drop_bindings(each, each->next);
    pthread_mutex_unlock(&physicals->mutex);
    return gone;
}

void physicals_free(struct physical *gone)
{
    while (gone != NULL) {
        struct physical *next = gone->next;
        free(gone);
        gone = next;
    }
}

static struct physical *physical_of(struct pointer known)
{
    return (struct physical *)(uintptr_t)known.owner;
}

struct physical *physicals_hold(struct physicals *physicals, uint64_t handle)
{
    struct pointer known = {0};
    pthread_mutex_lock(&physicals->mutex);
    if (pointers_find(&physicals->handles, handle, &known) == 0)
        physical_of(known)->references++;
    pthread_mutex_unlock(&physicals->mutex);
    return physical_of(known);
}

struct physical *physicals_ensure(struct physicals *physicals, uint64_t handle)
{
    struct pointer known = {0};
    pthread_mutex_lock(&physicals->mutex);
    if (pointers_find(&physicals->handles, handle, &known) != 0) {
        struct physical *object = physicals_new(0, 0);
        known = (struct pointer){.address = handle, .bytes = 1, .owner = (uintptr_t)object};
        if (object != NULL && pointers_add(&physicals->handles, known) != 0) {
            free(object);
            known.owner = 0;
        }
    }
    if (known.owner != 0)
        physical_of(known)->references++;
    pthread_mutex_unlock(&physicals->mutex);
    return physical_of(known);
}

/* Index of the first placement that starts above `address`. */
static size_t above(const struct physicals *physicals, uint64_t address)
{
    size_t low = 0, high = physicals->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (physicals->placements[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* One that leaves may still lie where another is already. */
static struct placement *placement_at(const struct physicals *physicals, uint64_t address)
{
    for (size_t index = above(physicals, address); index > 0; index--) {
        struct placement *placement = &physicals->placements[index - 1];
        if (placement->leaving == 0)
            return address - placement->address < placement->bytes ? placement : NULL;
    }
    return NULL;
}

struct physical *physicals_hold_at(struct physicals *physicals, uint64_t address)
{
    struct physical *held = NULL;
    pthread_mutex_lock(&physicals->mutex);
    const struct placement *placement = placement_at(physicals, address);
    if (placement != NULL) {
        held = placement->physical;
        held->references++;
    }
    pthread_mutex_unlock(&physicals->mutex);
    return held;
}

int physicals_name(struct physicals *physicals, uint64_t handle, struct physical *physical)
{
    struct pointer known = {0};
    pthread_mutex_lock(&physicals->mutex);
    pointers_find(&physicals->handles, handle, &known);
    uint64_t times = physical_of(known) == physical ? known.bytes + 1 : 1;
    struct pointer named = {.address = handle, .bytes = times, .owner = (uintptr_t)physical};
    int error = pointers_add(&physicals->handles, named);
    pthread_mutex_unlock(&physicals->mutex);
    return error;
}

/* What was taken out finds room to be put in again. */
struct physical *physicals_unname(struct physicals *physicals, uint64_t handle)
{
    struct pointer known = {0};
    pthread_mutex_lock(&physicals->mutex);
    pointers_take(&physicals->handles, handle, &known);
    if (known.bytes > 1) {
        known.bytes--;
        pointers_add(&physicals->handles, known);
    }
    pthread_mutex_unlock(&physicals->mutex);
    return physical_of(known);
}

static int make_room(struct physicals *physicals)
{
    if (physicals->count < physicals->capacity)
        return 0;
    size_t capacity = physicals->capacity == 0 ? PLACEMENTS_FIRST : physicals->capacity * 2;
    struct placement *placements =
        heap_kept(realloc(physicals->placements, capacity * sizeof *placements));
    if (placements == NULL)
        return -ENOMEM;
    physicals->placements = placements;
    physicals->capacity = capacity;
    return 0;
}

int physicals_place(struct physicals *physicals, uint64_t address, uint64_t bytes,
                    struct physical *physical)
{
    pthread_mutex_lock(&physicals->mutex);
    int error = make_room(physicals);
    if (error == 0) {
        size_t index = above(physicals, address);
        struct placement *place = &physicals->placements[index];
        memmove(place + 1, place, (physicals->count - index) * sizeof *place);
        *place = (struct placement){address, bytes, 0, physical};
        physicals->count++;
    }
    pthread_mutex_unlock(&physicals->mutex);
    return error;
}

static bool within(const struct placement *placement, uint64_t address, uint64_t bytes)
{
    return placement->address >= address && placement->bytes <= bytes &&
           placement->address - address <= bytes - placement->bytes;
}

/* The first placement, from `*index` on, of a range that has this mark; NULL if there is none. */
static struct placement *marked(const struct physicals *physicals, struct departure range,
                                uint64_t mark, size_t *index)
{
    for (; *index < physicals->count; (*index)++) {
        struct placement *placement = &physicals->placements[*index];
        if (placement->address >= range.address &&
            placement->address - range.address >= range.bytes)
            return NULL;
        if (placement->leaving == mark && within(placement, range.address, range.bytes))
            return placement;
    }
    return NULL;
}

static size_t first_of(const struct physicals *physicals, uint64_t address)
{
    return address == 0 ? 0 : above(physicals, address - 1);
}

static void mark(struct physicals *physicals, struct departure range, uint64_t from, uint64_t to)
{
    struct placement *placement;
    size_t index = first_of(physicals, range.address);
    while ((placement = marked(physicals, range, from, &index)) != NULL)
        placement->leaving = to;
}

struct departure physicals_leave(struct physicals *physicals, uint64_t address, uint64_t bytes)
{
    struct departure departure = {.address = address, .bytes = bytes};
    pthread_mutex_lock(&physicals->mutex);
    departure.ticket = ++physicals->tickets;
    mark(physicals, departure, 0, departure.ticket);
    pthread_mutex_unlock(&physicals->mutex);
    return departure;
}

void physicals_stay(struct physicals *physicals, struct departure departure)
{
    pthread_mutex_lock(&physicals->mutex);
    mark(physicals, departure, departure.ticket, 0);
    pthread_mutex_unlock(&physicals->mutex);
}

struct physical *physicals_left(struct physicals *physicals, struct departure departure)
{
    struct physical *physical = NULL;
    pthread_mutex_lock(&physicals->mutex);
    size_t index = first_of(physicals, departure.address);
    struct placement *place = marked(physicals, departure, departure.ticket, &index);
    if (place != NULL) {
        physical = place->physical;
        physicals->count--;
        memmove(place, place + 1, (physicals->count - index) * sizeof *place);
    }
    pthread_mutex_unlock(&physicals->mutex);
    return physical;
}

int physicals_bind(struct physicals *physicals, struct physical *object, uint64_t offset,
                   uint64_t bytes, struct physical *physical)
{
    struct binding *binding = malloc(sizeof *binding);
    if (binding == NULL)
        return -ENOMEM;
    pthread_mutex_lock(&physicals->mutex);
    *binding = (struct binding){object->bindings, offset, bytes, physical};
    object->bindings = binding;
    pthread_mutex_unlock(&physicals->mutex);
    return 0;
}

static bool binds_within(const struct binding *binding, unsigned device, uint64_t offset,
                         uint64_t bytes)
{
    return binding->physical->device == device && binding->offset >= offset &&
           binding->bytes <= bytes && binding->offset - offset <= bytes - binding->bytes;
}

struct binding *physicals_unbind(struct physicals *physicals, struct physical *object,
                                 unsigned device, uint64_t offset, uint64_t bytes)
{
    struct binding *apart = NULL;
    pthread_mutex_lock(&physicals->mutex);
    struct binding **at = &object->bindings;
    while (*at != NULL) {
        struct binding *binding = *at;
        if (!binds_within(binding, device, offset, bytes)) {
            at = &binding->next;
            continue;
        }
        *at = binding->next;
        binding->next = apart;
        apart = binding;
    }
    pthread_mutex_unlock(&physicals->mutex);
    return apart;
}

void physicals_rebind(struct physicals *physicals, struct physical *object, struct binding *apart)
{
    struct binding *last = apart;
    while (last->next != NULL)
        last = last->next;
    pthread_mutex_lock(&physicals->mutex);
    last->next = object->bindings;
    object->bindings = apart;
    pthread_mutex_unlock(&physicals->mutex);
}

struct physical *physicals_unbound(struct binding **apart)
{
    struct binding *first = *apart;
    if (first == NULL)
        return NULL;
    struct physical *physical = first->physical;
    *apart = first->next;
    free(first);
    return physical;
}

int physicals_share(struct physicals *physicals, struct physical *object)
{
    pthread_mutex_lock(&physicals->mutex);
    int news = object->foreign == 0;
    object->foreign = 1;
    pthread_mutex_unlock(&physicals->mutex);
    return news;
}

void physicals_clear(struct physicals *physicals)
{
    pointers_clear(&physicals->handles);
    free(physicals->placements);
    physicals->placements = NULL;
    physicals->count = physicals->capacity = 0;
}
