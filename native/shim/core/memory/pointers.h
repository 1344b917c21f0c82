/* Which addresses, or handles, we charged for: address → bytes, device and context.
 *
 * A growing open-addressing hash under one mutex. Any thread. All zero is a valid empty table.
 * Take an address out before the driver frees it: the driver may hand it out again at once.
 */
#ifndef SHIM_CORE_MEMORY_POINTERS_H
#define SHIM_CORE_MEMORY_POINTERS_H

#ifndef VCUDA_CDEF
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#endif

/* What the bytes are. */
enum pointer_kind {
    POINTER_PLAIN,    /* the process's own */
    POINTER_LOW,      /* the same, at an address of 32 bit */
    POINTER_MANAGED,  /* the same, and where they lie is the driver's choice */
    POINTER_ARRAY,    /* the same, at an address that nobody knows */
    POINTER_IMPORTED, /* another process's, which is charged for them */
    POINTER_KINDS,
};

struct pointer {
    uint64_t address; /* 0: the place is empty; the driver never gives address 0 */
    uint64_t bytes;
    uint32_t device; /* index in the configuration */
    enum pointer_kind kind;
    uint64_t context; /* the one it ends with; 0 if with none */
    uint64_t owner;   /* what else it is counted under, its pool say; 0 for nothing */
};

struct pointers {
    struct pointer *places; /* `size` of them, a power of two; owned */
    size_t size;
    size_t count;
#ifdef VCUDA_CDEF
    ...;
#else
    pthread_mutex_t mutex;
#endif
};

/* Remember an address; one already there is replaced, and told: its address is 0 if there was none.
 * Returns 0, or -ENOMEM and nothing changed. */
int pointers_replace(struct pointers *pointers, struct pointer pointer, struct pointer *earlier);
int pointers_add(struct pointers *pointers, struct pointer pointer);

/* Forget an address, telling what it was. Returns 0, or -ENOENT for one we do not know. */
int pointers_take(struct pointers *pointers, uint64_t address, struct pointer *taken);

/* Tell what an address is. Returns 0, or -ENOENT for one we do not know. */
int pointers_find(struct pointers *pointers, uint64_t address, struct pointer *found);

/* Count at an address: remember it with 1 for its bytes and return 1, or add 1 to them and return
 * 0; or -ENOMEM and nothing changed. And take 1 away again: 1 if nothing is left, so that it is
 * forgotten, else 0, or -ENOENT for one we do not know. `counted` tells what it is, or was. */
int pointers_count(struct pointers *pointers, struct pointer pointer, struct pointer *counted);
int pointers_uncount(struct pointers *pointers, uint64_t address, struct pointer *counted);

/* Forget one address, whichever, that ends with `context`, telling what it was; -ENOENT when there
 * are no more. Looks at all of them: for contexts that end, in a loop. */
int pointers_take_of(struct pointers *pointers, uint64_t context, struct pointer *taken);

/* What ends with `context` ends with `other` from now on. */
void pointers_move(struct pointers *pointers, uint64_t context, uint64_t other);

/* Forget all and give the table's memory back. */
void pointers_clear(struct pointers *pointers);

#endif
