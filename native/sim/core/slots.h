/* Sets of process slots, as bits. */
#ifndef SIM_CORE_SLOTS_H
#define SIM_CORE_SLOTS_H

#include "core/machine.h"
#include <stdbool.h>

enum { SLOT_WORDS = SIM_PROCESSES / 64 };

static inline bool slots_have(const uint64_t set[SLOT_WORDS], unsigned slot)
{
    return (set[slot / 64] >> slot % 64 & 1) != 0;
}

/* The first slot of the set at or after `from`; SIM_PROCESSES for none. */
static inline unsigned slots_from(const uint64_t set[SLOT_WORDS], unsigned from)
{
    for (unsigned word = from / 64; word < SLOT_WORDS; word++) {
        uint64_t here = set[word];
        if (word == from / 64)
            here &= UINT64_MAX << from % 64;
        if (here != 0)
            return word * 64 + (unsigned)__builtin_ctzll(here);
    }
    return SIM_PROCESSES;
}

/* The next slot of the set in the ring after `slot`, itself last; SIM_PROCESSES for an empty set.
 */
static inline unsigned slots_next(const uint64_t set[SLOT_WORDS], unsigned slot)
{
    unsigned next = slots_from(set, slot + 1);
    return next < SIM_PROCESSES ? next : slots_from(set, 0);
}

#endif
