/* Physical memory that was charged for, and everything that keeps it: handles, mappings, bindings.
 *
 * The driver frees such memory when the last of them is gone, in whatever order. So each of them is
 * one reference, and a reference is always somebody's: it comes to the caller (physicals_new,
 * _hold, _unname, …), and the caller passes it on (physicals_name, _place, _bind) or drops it. A
 * caller that holds one across a call of the driver need not fear what other threads do meanwhile.
 *
 * What was made elsewhere, multicast objects and logical endpoints are entered with 0 bytes: they
 * cost nothing here, but can keep what does.
 *
 * Any thread. Knows neither CUDA nor files. All zero is a valid beginning.
 */
#ifndef SHIM_CORE_MEMORY_PHYSICAL_H
#define SHIM_CORE_MEMORY_PHYSICAL_H

#include "core/memory/pointers.h"

struct binding;

/* One physical memory. After physicals_drop() said that it is gone: a list of such. */
struct physical {
    struct physical *next;    /* that is gone too */
    struct binding *bindings; /* what it keeps, as such an object */
    uint64_t bytes;
    uint32_t device; /* index in the configuration */
    uint32_t references;
    uint32_t foreign; /* other processes may know it too */
};

/* One mapping: a reference that an address has. leaving: 0, or the ticket of its departure. */
struct placement {
    uint64_t address;
    uint64_t bytes;
    uint64_t leaving;
    struct physical *physical;
};

/* Mappings on their way out. */
struct departure {
    uint64_t address;
    uint64_t bytes;
    uint64_t ticket;
};

struct physicals {
    struct pointers handles; /* handle → how often it is to be released (bytes), what (owner) */
    struct placement *placements; /* `count` of them by address, room for `capacity`; owned */
    size_t count;
    size_t capacity;
    uint64_t tickets;
#ifdef VCUDA_CDEF
    ...;
#else
    pthread_mutex_t mutex;
#endif
};

/* A physical memory with one reference, the caller's. NULL without memory. */
struct physical *physicals_new(unsigned device, uint64_t bytes);

/* A reference more, the caller's: to what a handle stands for, or what lies at an address. NULL for
 * what we do not know. */
struct physical *physicals_hold(struct physicals *physicals, uint64_t handle);
struct physical *physicals_hold_at(struct physicals *physicals, uint64_t address);

/* As physicals_hold(), but what we do not know is made: an object that costs nothing and ends with
 * its handle. NULL without memory. */
struct physical *physicals_ensure(struct physicals *physicals, uint64_t handle);

/* Give up the caller's reference. Returns what is gone by that, NULL if nothing: its bytes are to
 * be given back, and physicals_free() called. Can be more than one: an object with its bindings. */
struct physical *physicals_drop(struct physicals *physicals, struct physical *physical);
void physicals_free(struct physical *gone);

/* The caller's reference becomes the handle's: one release of it more. Returns 0, or -ENOMEM and
 * the reference stays the caller's. What an equal handle stood for before is kept for ever. */
int physicals_name(struct physicals *physicals, uint64_t handle, struct physical *physical);

/* A reference of the handle becomes the caller's; NULL for a handle we do not know. */
struct physical *physicals_unname(struct physicals *physicals, uint64_t handle);

/* The caller's reference becomes the mapping's. Returns 0, or -ENOMEM and it stays the caller's. */
int physicals_place(struct physicals *physicals, uint64_t address, uint64_t bytes,
                    struct physical *physical);

/* Take all mappings that lie within a range away, in two steps: mark them, and when the driver has
 * answered take their references one by one until NULL, or let them stay. */
struct departure physicals_leave(struct physicals *physicals, uint64_t address, uint64_t bytes);
struct physical *physicals_left(struct physicals *physicals, struct departure departure);
void physicals_stay(struct physicals *physicals, struct departure departure);

/* The caller's reference to `physical` becomes a binding of `object`, to which the caller has a
 * reference too. Returns 0, or -ENOMEM and it stays the caller's. */
int physicals_bind(struct physicals *physicals, struct physical *object, uint64_t offset,
                   uint64_t bytes, struct physical *physical);

/* Take the bindings of memory on a device that lie within a range off an object, in two steps: set
 * them apart, NULL for none, and when the driver has answered take their references one by one
 * until NULL, or put all of them back. */
struct binding *physicals_unbind(struct physicals *physicals, struct physical *object,
                                 unsigned device, uint64_t offset, uint64_t bytes);
struct physical *physicals_unbound(struct binding **apart);
void physicals_rebind(struct physicals *physicals, struct physical *object, struct binding *apart);

/* Other processes may know the object: what is bound to it stays bound when we let go of it.
 * Returns 1 if that is news, else 0. */
int physicals_share(struct physicals *physicals, struct physical *object);

/* Forget all and give the memory back; nobody else may use it then. */
void physicals_clear(struct physicals *physicals);

#endif
