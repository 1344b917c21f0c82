#include "core/names.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a word's first byte is its lowest");

enum { WORD = sizeof(uint64_t), SIZE_FIRST = 256, ROOM_FIRST = 4096, BATCH = 32 };

#define EACH_BYTE(value) (UINT64_C(0x0101010101010101) * (value))

/* A word of which `size` bytes, at most all, count. */
static uint64_t first_bytes(uint64_t word, size_t size)
{
    return size == WORD ? word : word & ((UINT64_C(1) << (8 * size)) - 1);
}

static uint64_t load(const char *from, size_t size)
{
    uint64_t word = 0;
    memcpy(&word, from, size);
    return word;
}

/* Takes eight bytes of a name in; zeros stand behind its end. */
static uint64_t stir(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 29);
}

static uint32_t settle(uint64_t hash)
{
    return (uint32_t)(hash >> 17);
}

static uint32_t hash_of(const char *name, size_t size)
{
    uint64_t hash = 0;
    for (; size >= WORD; name += WORD, size -= WORD)
        hash = stir(hash, load(name, WORD));
    return settle(size > 0 ? stir(hash, load(name, size)) : hash);
}

static bool same(const char *a, const char *b, size_t size)
{
    for (; size >= WORD; a += WORD, b += WORD, size -= WORD)
        if (load(a, WORD) != load(b, WORD))
            return false;
    return size == 0 || memcmp(a, b, size) == 0;
}

static bool is(const struct names *names, struct names_place place, uint32_t hash, const char *name,
               size_t size)
{
    const struct names_slot *slot = &names->slots[place.number];
    return place.hash == hash && slot->size == size && same(names->arena + slot->at, name, size);
}

/* The place of this name, or the empty one where it belongs. There always is one. */
static uint32_t find(const struct names *names, uint32_t hash, const char *name, size_t size)
{
    uint32_t mask = names->size - 1, at = hash & mask;
    while (names->places[at].number != NAMES_NOBODY &&
           !is(names, names->places[at], hash, name, size))
        at = (at + 1) & mask;
    return at;
}

static int grow_places(struct names *names)
{
    uint32_t size = names->size == 0 ? SIZE_FIRST : names->size * 2, mask = size - 1;
    if ((names->count + 1) * 2 <= names->size)
        return 0;
    struct names_place *places = calloc(size, sizeof *places);
    if (places == NULL)
        return -ENOMEM;
    for (uint32_t old = 0; old < names->size; old++) {
        if (names->places[old].number == NAMES_NOBODY)
            continue;
        uint32_t at = names->places[old].hash & mask;
        while (places[at].number != NAMES_NOBODY)
            at = (at + 1) & mask;
        places[at] = names->places[old];
    }
    free(names->places);
    names->places = places;
    names->size = size;
    return 0;
}

static int grow_slots(struct names *names, uint32_t number)
{
    if (number < names->slot_count)
        return 0;
    uint32_t count = number * 2 < SIZE_FIRST ? SIZE_FIRST : number * 2;
    struct names_slot *slots = realloc(names->slots, count * sizeof *slots);
    if (slots == NULL)
        return -ENOMEM;
    memset(slots + names->slot_count, 0, (count - names->slot_count) * sizeof *slots);
    names->slots = slots;
    names->slot_count = count;
    return 0;
}

/* Room for `size` bytes more; names that are there move together, without those that are gone. */
static int grow_arena(struct names *names, uint32_t size)
{
    uint32_t room = 2 * (names->live + size) + ROOM_FIRST, used = 0;
    if (names->room - names->used >= size)
        return 0;
    char *arena = malloc(room);
    if (arena == NULL)
        return -ENOMEM;
    for (uint32_t number = 0; number < names->slot_count; number++) {
        struct names_slot *slot = &names->slots[number];
        if (slot->size == 0)
            continue;
        memcpy(arena + used, names->arena + slot->at, slot->size);
        slot->at = used;
        used += slot->size;
    }
    free(names->arena);
    names->arena = arena;
    names->room = room;
    names->used = used;
    return 0;
}

int names_add(struct names *names, const char *name, size_t size, uint32_t number)
{
    if (size == 0 || size > NAMES_LONGEST || number == NAMES_NOBODY || number > NAMES_HIGHEST)
        return -EINVAL;
    if (grow_places(names) != 0 || grow_slots(names, number) != 0 ||
        grow_arena(names, (uint32_t)size) != 0)
        return -ENOMEM;
    uint32_t hash = hash_of(name, size), at = find(names, hash, name, size);
    if (names->places[at].number != NAMES_NOBODY || names->slots[number].size != 0)
        return -EEXIST;
    memcpy(names->arena + names->used, name, size);
    names->slots[number] = (struct names_slot){names->used, (uint32_t)size};
    names->places[at] = (struct names_place){hash, number};
    names->used += (uint32_t)size;
    names->live += (uint32_t)size;
    names->count++;
    return 0;
}

/* Empty a place and close the gap, so that every search still ends at the first empty place. */
static void empty(struct names *names, uint32_t hole)
{
    uint32_t mask = names->size - 1;
    for (uint32_t at = (hole + 1) & mask; names->places[at].number != NAMES_NOBODY;
         at = (at + 1) & mask) {
        if (((at - names->places[at].hash) & mask) < ((at - hole) & mask))
            continue; /* its home is after the hole */
        names->places[hole] = names->places[at];
        hole = at;
    }
    names->places[hole] = (struct names_place){0};
    names->count--;
}

uint32_t names_remove(struct names *names, const char *name, size_t size)
{
    if (names->count == 0 || size == 0)
        return NAMES_NOBODY;
    uint32_t at = find(names, hash_of(name, size), name, size);
    uint32_t number = names->places[at].number;
    if (number == NAMES_NOBODY)
        return NAMES_NOBODY;
    names->live -= names->slots[number].size;
    names->slots[number] = (struct names_slot){0};
    empty(names, at);
    return number;
}

uint32_t names_find(const struct names *names, const char *name, size_t size)
{
    if (names->count == 0 || size == 0)
        return NAMES_NOBODY;
    return names->places[find(names, hash_of(name, size), name, size)].number;
}

static bool is_plain(const char *name, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        char c = name[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.'))
            return false;
    }
    return true;
}

/* How many bytes of this word stand before a quote; WORD where there is none. */
static size_t before_quote(uint64_t word)
{
    uint64_t zero = word ^ EACH_BYTE('"');
    uint64_t found = (zero - EACH_BYTE(1)) & ~zero & EACH_BYTE(0x80);
    return found == 0 ? WORD : (size_t)__builtin_ctzll(found) / 8;
}

/* The bytes from `from` that are left, eight at most; zeros behind them. */
static uint64_t next_word(const char *from, const char *end)
{
    size_t left = (size_t)(end - from);
    return left >= WORD ? load(from, WORD) : load(from, left);
}

/* The quote that ends the name that begins here, and the name's hash; NULL where there is none. */
static const char *measure(const char *name, const char *end, uint32_t *hash)
{
    uint64_t stirred = 0;
    for (; name < end; name += WORD) {
        uint64_t word = next_word(name, end);
        size_t size = before_quote(word);
        if (size > 0)
            stirred = stir(stirred, first_bytes(word, size));
        if (size < WORD) {
            *hash = settle(stirred);
            return name + size;
        }
    }
    return NULL;
}

/* Ask memory for all that finding these names will look at, which is far away: each on its way
 * while the others are, not one after another. */
static void fetch(const struct names *names, const uint32_t *hashes, uint32_t count)
{
    uint32_t mask = names->size - 1;
    for (uint32_t i = 0; i < count; i++)
        __builtin_prefetch(&names->slots[names->places[hashes[i] & mask].number]);
    for (uint32_t i = 0; i < count; i++)
        __builtin_prefetch(names->arena + names->slots[names->places[hashes[i] & mask].number].at);
}

/* The numbers of some names of a list; whether all are plain. */
static bool look_up(const struct names *names, const char *text, const uint32_t *begins,
                    const uint32_t *hashes, uint32_t count, uint32_t *numbers)
{
    bool any = names->count > 0;
    if (any)
        fetch(names, hashes, count);
    for (uint32_t i = 0; i < count; i++) {
        const char *name = text + begins[i] + 1;
        size_t size = begins[i + 1] - 3 - begins[i];
        uint32_t place = any ? find(names, hashes[i], name, size) : 0;
        numbers[i] = any ? names->places[place].number : NAMES_NOBODY;
        if (numbers[i] == NAMES_NOBODY && !is_plain(name, size))
            return false;
    }
    return true;
}

int names_read(const struct names *names, const char *text, size_t size, uint32_t *numbers,
               uint32_t *begins, uint32_t capacity)
{
    const char *end = text + size, *at = text;
    uint32_t hashes[BATCH], count = 0;
    if (size > INT32_MAX)
        return -EINVAL;
    for (begins[0] = 0; count < capacity && at < end && *at == '"'; at++) {
        const char *quote = measure(at + 1, end, &hashes[count % BATCH]);
        if (quote == NULL || quote + 1 == end)
            return -EINVAL;
        if (names->count > 0)
            __builtin_prefetch(&names->places[hashes[count % BATCH] & (names->size - 1)]);
        at = quote + 1;
        begins[++count] = (uint32_t)(at - text) + 1;
        uint32_t first = (count - 1) / BATCH * BATCH;
        if ((count % BATCH == 0 || *at != ',') &&
            !look_up(names, text, begins + first, hashes, count - first, numbers + first))
            return -EINVAL;
        if (*at != ',')
            return *at == ']' ? (int)count : -EINVAL;
    }
    return -EINVAL;
}

void names_clear(struct names *names)
{
    free(names->places);
    free(names->slots);
    free(names->arena);
    *names = (struct names){0};
}
