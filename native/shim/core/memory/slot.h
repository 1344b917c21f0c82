/* What one slot of the books holds on one device. */
#ifndef SHIM_CORE_MEMORY_SLOT_H
#define SHIM_CORE_MEMORY_SLOT_H

#include "vcuda_region.h"

/* Sums of bytes stay at the top instead of wrapping around: who doubts refuses. */
static inline uint64_t slot_add(uint64_t left, uint64_t right)
{
    return left > UINT64_MAX - right ? UINT64_MAX : left + right;
}

/* What the driver takes by itself: estimated by the process, measured by the manager. */
static inline uint64_t slot_driver_bytes(const struct vcuda_books *books, unsigned device,
                                         uint32_t slot)
{
    /* sequentially consistent, as all words that books.c decides by */
    uint64_t estimated = atomic_load(&books->context[device][slot]);
    uint64_t measured = atomic_load(&books->overhead[device][slot]);
    return estimated > measured ? estimated : measured;
}

/* Of a device's words, the one that says what lies beside the driver's own figure (VCUDA_BESIDE):
 * managed, imported or exported bytes. NULL where there is no room for it. `devices`: the
 * container's. */
static inline VCUDA_ATOMIC(uint64_t) * slot_beside(VCUDA_ATOMIC(uint64_t)
                                                       words[VCUDA_DEVICES][VCUDA_SLOTS],
                                                   unsigned device, uint32_t slot, uint32_t devices)
{
    return devices <= VCUDA_BESIDE && device < devices ? &words[VCUDA_BESIDE + device][slot] : NULL;
}

/* Of what a slot's owner uses, what other processes may hold, too. */
static inline uint64_t slot_exported(struct vcuda_books *books, unsigned device, uint32_t slot,
                                     uint32_t devices)
{
    VCUDA_ATOMIC(uint64_t) *word = slot_beside(books->pending, device, slot, devices);
    return word == NULL ? 0 : atomic_load(word);
}

/* Around whatever moves bytes of a slot: reserve, let the driver allocate, or let it free, release.
 * Sequentially consistent: seen before the bytes move, and after they have. */
static inline void slot_move_begin(struct vcuda_books *books, int32_t slot)
{
    atomic_fetch_add(&books->activity[slot], VCUDA_ACTIVITY_BEGUN + 1);
}

static inline void slot_move_end(struct vcuda_books *books, int32_t slot)
{
    atomic_fetch_sub(&books->activity[slot], 1);
}

static inline uint64_t slot_bytes(const struct vcuda_books *books, unsigned device, uint32_t slot)
{
    return slot_add(atomic_load(&books->used[device][slot]),
                    slot_driver_bytes(books, device, slot));
}

#endif
