#include "core/memory/pointers.h"

#include "core/heap.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

enum { SIZE_FIRST = 256 };

/* Addresses are multiples of 512: multiply (Fibonacci hashing) and keep the high bits. */
static size_t home(const struct pointers *pointers, uint64_t address)
{
    return (size_t)((address * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (pointers->size - 1);
}

/* The place that holds `address`, or the empty one where it belongs. There always is one. */
static struct pointer *find(const struct pointers *pointers, uint64_t address)
{
    size_t place = home(pointers, address);
    while (pointers->places[place].address != 0 && pointers->places[place].address != address)
        place = (place + 1) & (pointers->size - 1);
    return &pointers->places[place];
}

static int grow(struct pointers *pointers)
{
    struct pointers larger = {.size = pointers->size == 0 ? SIZE_FIRST : pointers->size * 2};
    larger.places = heap_kept(calloc(larger.size, sizeof *larger.places));
    if (larger.places == NULL)
        return -ENOMEM;
    for (size_t place = 0; place < pointers->size; place++)
        if (pointers->places[place].address != 0)
            *find(&larger, pointers->places[place].address) = pointers->places[place];
    free(pointers->places);
    pointers->places = larger.places;
    pointers->size = larger.size;
    return 0;
}

static int replace(struct pointers *pointers, struct pointer pointer, struct pointer *earlier)
{
    if ((pointers->count + 1) * 2 > pointers->size && grow(pointers) != 0)
        return -ENOMEM;
    struct pointer *place = find(pointers, pointer.address);
    pointers->count += place->address == 0;
    *earlier = *place;
    *place = pointer;
    return 0;
}

/* May the pointer at `place` move back to the hole, that is: is its home not after the hole? */
static bool movable(const struct pointers *pointers, size_t hole, size_t place)
{
    size_t mask = pointers->size - 1;
    size_t start = home(pointers, pointers->places[place].address);
    return ((place - start) & mask) >= ((place - hole) & mask);
}

/* Empty a place and close the gap, so that every search still ends at the first empty place. */
static void empty(struct pointers *pointers, size_t hole)
{
    size_t mask = pointers->size - 1;
    for (size_t place = (hole + 1) & mask; pointers->places[place].address != 0;
         place = (place + 1) & mask) {
        if (!movable(pointers, hole, place))
            continue;
        pointers->places[hole] = pointers->places[place];
        hole = place;
    }
    pointers->places[hole] = (struct pointer){0};
    pointers->count--;
}

static int take(struct pointers *pointers, uint64_t address, struct pointer *taken)
{
    if (address == 0 || pointers->count == 0)
        return -ENOENT;
    struct pointer *place = find(pointers, address);
    if (place->address == 0)
        return -ENOENT;
    *taken = *place;
    empty(pointers, (size_t)(place - pointers->places));
    return 0;
}

int pointers_replace(struct pointers *pointers, struct pointer pointer, struct pointer *earlier)
{
    pthread_mutex_lock(&pointers->mutex);
    int error = replace(pointers, pointer, earlier);
    pthread_mutex_unlock(&pointers->mutex);
    return error;
}

int pointers_add(struct pointers *pointers, struct pointer pointer)
{
    struct pointer earlier;
    return pointers_replace(pointers, pointer, &earlier);
}

int pointers_take(struct pointers *pointers, uint64_t address, struct pointer *taken)
{
    pthread_mutex_lock(&pointers->mutex);
    int error = take(pointers, address, taken);
    pthread_mutex_unlock(&pointers->mutex);
    return error;
}

int pointers_find(struct pointers *pointers, uint64_t address, struct pointer *found)
{
    pthread_mutex_lock(&pointers->mutex);
    const struct pointer *place =
        address == 0 || pointers->count == 0 ? NULL : find(pointers, address);
    bool known = place != NULL && place->address != 0;
    if (known)
        *found = *place;
    pthread_mutex_unlock(&pointers->mutex);
    return known ? 0 : -ENOENT;
}

int pointers_count(struct pointers *pointers, struct pointer pointer, struct pointer *counted)
{
    pthread_mutex_lock(&pointers->mutex);
    struct pointer *place = pointers->count == 0 ? NULL : find(pointers, pointer.address);
    int fresh = place == NULL || place->address == 0;
    pointer.bytes = 1;
    if (!fresh) {
        place->bytes++;
        *counted = *place;
    } else if (replace(pointers, pointer, counted) == 0) {
        *counted = pointer;
    } else {
        fresh = -ENOMEM;
    }
    pthread_mutex_unlock(&pointers->mutex);
    return fresh;
}

int pointers_uncount(struct pointers *pointers, uint64_t address, struct pointer *counted)
{
    int gone = -ENOENT;
    pthread_mutex_lock(&pointers->mutex);
    struct pointer *place = pointers->count == 0 ? NULL : find(pointers, address);
    if (place != NULL && place->address != 0) {
        place->bytes--;
        *counted = *place;
        gone = counted->bytes == 0;
        if (gone)
            empty(pointers, (size_t)(place - pointers->places));
    }
    pthread_mutex_unlock(&pointers->mutex);
    return gone;
}

static int take_of(struct pointers *pointers, uint64_t context, struct pointer *taken)
{
    for (size_t place = 0; context != 0 && place < pointers->size; place++) {
        if (pointers->places[place].address == 0 || pointers->places[place].context != context)
            continue;
        *taken = pointers->places[place];
        empty(pointers, place);
        return 0;
    }
    return -ENOENT;
}

int pointers_take_of(struct pointers *pointers, uint64_t context, struct pointer *taken)
{
    pthread_mutex_lock(&pointers->mutex);
    int error = take_of(pointers, context, taken);
    pthread_mutex_unlock(&pointers->mutex);
    return error;
}

void pointers_move(struct pointers *pointers, uint64_t context, uint64_t other)
{
    pthread_mutex_lock(&pointers->mutex);
    for (size_t place = 0; context != 0 && place < pointers->size; place++)
        if (pointers->places[place].address != 0 && pointers->places[place].context == context)
            pointers->places[place].context = other;
    pthread_mutex_unlock(&pointers->mutex);
}

void pointers_clear(struct pointers *pointers)
{
    pthread_mutex_lock(&pointers->mutex);
    free(pointers->places);
    pointers->places = NULL;
    pointers->size = 0;
    pointers->count = 0;
    pthread_mutex_unlock(&pointers->mutex);
}
