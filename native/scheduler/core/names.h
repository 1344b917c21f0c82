/* Node names to numbers, and lists of names as somebody sent them.
 *
 * A question to the scheduler names up to all nodes of a cluster, and all it wants of each name is
 * its number. The names that are known lie in one arena, their numbers in a hash beside it; a list
 * is read where it lies, once. What is in a list comes from strangers: nothing is read beyond its
 * end, and it changes nothing.
 *
 * One thread at a time. All zero is a valid empty table. Numbers are given by the caller.
 */
#ifndef SCHEDULER_CORE_NAMES_H
#define SCHEDULER_CORE_NAMES_H

#ifndef VCUDA_CDEF
#include <stddef.h>
#include <stdint.h>
#endif

enum {
    NAMES_NOBODY = 0, /* the number of a name that is not known */
    NAMES_LONGEST = 1024,
    NAMES_HIGHEST = 1 << 20, /* number; so all sizes stay below 2^32 */
};

/* A known name: where it lies in the arena. */
struct names_slot {
    uint32_t at;
    uint32_t size; /* 0: nobody has this number */
};

/* A place in the hash. */
struct names_place {
    uint32_t hash;
    uint32_t number; /* NAMES_NOBODY: empty */
};

struct names {
    struct names_place *places; /* `size` of them, a power of two; owned */
    uint32_t size;
    uint32_t count;
    struct names_slot *slots; /* by number, `slot_count` of them; owned */
    uint32_t slot_count;
    char *arena; /* `room` bytes of which `used` are taken, `live` of them by names; owned */
    uint32_t room;
    uint32_t used;
    uint32_t live;
};

/* From now on this name has this number. Returns 0; -EEXIST where it, or the number, is taken;
 * -EINVAL for a number or a size that cannot be; -ENOMEM and nothing changed. */
int names_add(struct names *names, const char *name, size_t size, uint32_t number);

/* Forget a name. Returns its number, or NAMES_NOBODY. */
uint32_t names_remove(struct names *names, const char *name, size_t size);

/* Returns its number, or NAMES_NOBODY. */
uint32_t names_find(const struct names *names, const char *name, size_t size);

/* Read `"a","b","c"]`: names of small letters, digits, `-` and `.`, and what ends them.
 *
 * Name i begins with its quote at begins[i] of `text`, and ends with it before begins[i + 1] - 1;
 * there is one more for the `]`. Both rows have room for `capacity` names, begins for one more.
 * Returns how many there are, at least one; or -EINVAL where anything else stands there, or they
 * are too many. */
int names_read(const struct names *names, const char *text, size_t size, uint32_t *numbers,
               uint32_t *begins, uint32_t capacity);

/* Forget all and give the memory back. */
void names_clear(struct names *names);

#endif
