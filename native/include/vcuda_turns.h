/* The words by which the containers of a GPU take turns, and the world that both sides live in.
 *
 * Without MPS, processes of two containers never run side by side on a GPU: the hardware gives them
 * slices in turn. So an arbiter (native/arbiter) grants the GPU to one container at a time, and the
 * shim launches in its container's turn only.
 *
 * `struct vcuda_turns` is written by the arbiter alone: one file for each container, on memory
 * (tmpfs, for a page of a disk's file may block), which the shim opens by itself through a mount
 * that is read-only for everybody in the container. `struct vcuda_hints` is written by the
 * processes of the container and read by the arbiter; it lies behind the books, in the same sealed
 * memory (vcuda_region.h), where managers and shims of before look at nothing. What it says is
 * believed against its writer only.
 *
 * To ring, a process writes one byte into the pipe beside the words, which never blocks: "look at
 * my hints now". A ring that is lost is made up for by the arbiter's next look, within 10 ms.
 *
 * Times are CLOCK_MONOTONIC, ns. The layout is frozen per VCUDA_TURNS_ABI.
 */
#ifndef VCUDA_TURNS_H
#define VCUDA_TURNS_H

#include "vcuda_region.h"

enum {
    VCUDA_TURNS_ABI = 2,
    VCUDA_TURNS_MAGIC = 0x4e525456, /* "VTRN" */

    /* Bits of the word `turn`; above them it counts its changes. */
    VCUDA_TURN_GRANTED = 1, /* launch */
    VCUDA_TURN_BOUNDED = 2, /* but keep no more in flight than window_ns: others are there, or a
                               ceiling is. Without it nothing in flight is told, either */
    VCUDA_TURN_SHARED = 4,  /* work of others is in flight, too: no drain shows how long ours is */
    VCUDA_TURN_WANTED = 8,  /* others wait: ring as soon as nothing is in flight any more, and let
                               launches carry marks */
    VCUDA_TURN_STEP = 16,

    VCUDA_LEASE_MS = 50, /* after a look that is older its words say nothing: the arbiter sleeps,
                            and a ring wakes it, or it is away */
};

/* One GPU of one container. */
struct vcuda_turn {
    VCUDA_ATOMIC(uint32_t) turn; /* a futex, shared */
    uint32_t reserved;
    VCUDA_ATOMIC(uint64_t) window_ns; /* of work that may be in flight, by its length */
    VCUDA_ATOMIC(uint64_t)
    looked_ns; /* when the arbiter last looked at the GPU: each 10 ms at
                  least while a container wants it */
    uint8_t rest[40];
};

struct vcuda_turns {
    uint32_t magic;
    uint32_t abi;
    uint32_t size;
    uint32_t device_count;
    uint8_t reserved[48];
    struct vcuda_turn of[VCUDA_DEVICES]; /* in the order of the configuration's devices */
};

/* One process, by its slot, on one GPU. Written by that process alone; the manager empties it when
 * the slot is given to another one. */
struct vcuda_hint {
    VCUDA_ATOMIC(uint32_t) waiting;  /* threads that wait for the turn */
    VCUDA_ATOMIC(uint32_t) ran_ns;   /* what the launches that ended take alone, about, added up */
    VCUDA_ATOMIC(uint64_t) since_ns; /* work is in flight; 0: none is */
    VCUDA_ATOMIC(uint64_t) busy_ns;  /* all such times before, added up */
    VCUDA_ATOMIC(uint64_t)
    progress_ns;                       /* when work was last seen to end, or to begin where there
                                          was none */
    VCUDA_ATOMIC(uint64_t) longest_ns; /* without an end that is seen, about: at least a launch */
    VCUDA_ATOMIC(uint64_t) held_ns;    /* launches held back by the window alone, added up */
    VCUDA_ATOMIC(uint32_t)
    collectives;                                 /* in flight: kernels of one container that
                                                    wait for one another */
    VCUDA_ATOMIC(uint32_t) collectives_launched; /* of those, counted for ever */
    VCUDA_ATOMIC(uint64_t)
    waits_until_ns; /* what `waiting` says is renewed before that, or its
                       threads have left by a jump */
};

struct vcuda_hints {
    struct vcuda_hint of[VCUDA_DEVICES][VCUDA_SLOTS];
};

enum { VCUDA_HINTS_ALIGNED = 4096 };

/* What the arbiter and the shim ask of the world. The real one reads the clock by the system call,
 * where no preloaded library reaches, and waits by futexes; a simulation's lives by its own clock.
 */
struct vcuda_world {
    uint64_t (*now)(void);
    /* Until the word is not `expected` any more and somebody woke it, or the time has come. May
     * return early. NULL: any waking. */
    void (*wait)(const VCUDA_ATOMIC(uint32_t) * word, uint32_t expected, uint64_t deadline);
    void (*wake)(VCUDA_ATOMIC(uint32_t) * word); /* all who wait for it, in any process */
};

#ifndef VCUDA_CDEF
/* Where in the memory of the books the hints lie. */
static inline size_t vcuda_hints_offset(void)
{
    return (sizeof(struct vcuda_books) + VCUDA_HINTS_ALIGNED - 1) &
           ~((size_t)VCUDA_HINTS_ALIGNED - 1);
}

_Static_assert(sizeof(struct vcuda_turn) == 64, "frozen");
_Static_assert(sizeof(struct vcuda_turns) == 64 + 64 * VCUDA_DEVICES, "frozen");
_Static_assert(sizeof(struct vcuda_hint) == 64, "frozen");
#endif

#endif
