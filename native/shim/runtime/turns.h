/* This process's view of its container's turns (vcuda_turns.h): the words of the arbiter, its own
 * hints, the pipe to ring by, and the clock and the waits of the world that it runs in.
 *
 * Opened once, when the session is attached.
 */
#ifndef SHIM_RUNTIME_TURNS_H
#define SHIM_RUNTIME_TURNS_H

#include "core/file_identity.h"
#include "vcuda_turns.h"

#include <stdatomic.h>
#include <stdbool.h>

/* All zero: none. */
struct turns {
    const struct vcuda_turns *words; /* NULL: not attached, or without a slot */
    bool told;                       /* an arbiter writes them, or did */
    struct vcuda_hint *hints;        /* of this process: [device * VCUDA_SLOTS] */
    const struct vcuda_world *world;
    atomic_int ring;
    struct file_identity pipe; /* what `ring` must be of to be ours; it is opened again if not */
};

/* books: descriptor of their memory, which holds the hints, too. */
void turns_open(struct turns *turns, int books, int32_t slot);

/* The arbiter is to look now. Never blocks. Any thread. */
void turns_ring(struct turns *turns);

static inline const struct vcuda_turn *turns_word(const struct turns *turns, unsigned device)
{
    return &turns->words->of[device];
}

static inline struct vcuda_hint *turns_hint(const struct turns *turns, unsigned device)
{
    return &turns->hints[(size_t)device * VCUDA_SLOTS];
}

/* May a process launch on a device without telling anything? */
static inline bool turns_free(const struct turns *turns, unsigned device)
{
    uint32_t word = turns->words == NULL ? 0
                                         : atomic_load_explicit(&turns->words->of[device].turn,
                                                                memory_order_acquire);
    return (word & (VCUDA_TURN_GRANTED | VCUDA_TURN_BOUNDED)) == VCUDA_TURN_GRANTED;
}

#endif
