/* The two pages of memory the manager shares with the processes of one container.
 *
 * `struct vcuda_config` is written by the manager alone and mapped read-only by the shim: who the
 * container is and what it may use. `struct vcuda_books` is mapped read-write by every process of
 * the container: who holds how much. The configuration is a file of the allocation's directory. The
 * books are sealed memory that lives as long as one of these processes has it open, so that it
 * outlives the manager; the shim receives it as a file descriptor (vcuda_protocol.h).
 *
 * Rules that make the books right after any crash:
 *   - a word of `used`, `context` and `pending` has one writer: the process that owns the slot;
 *   - whoever moves bytes of `used` says so in `activity` before it begins and after it has
 *     ended, so that the manager can tell a measurement in between from a wrong one;
 *   - `overhead`, `samples`, `looks`, `slots`, `inner_pid` and `slot_limit` are the manager's
 * alone, but for peers that empty the words of a dead process while the manager is away (peers.h);
 *   - a slot holds `used`, and of `context` and `overhead` whichever is more: what the driver takes
 *     by itself is estimated by the process before it happens and measured by the manager after;
 *   - what the driver's figure of a process may not contain, or may contain although another one is
 *     charged for it, lies in words of devices that the container does not have (VCUDA_BESIDE);
 *   - a total is never stored, always summed (books.h says in which order);
 *   - a process holds, for its life, an OFD write lock on byte VCUDA_ALIVE_BYTE + slot of the
 * books, and the manager gives no slot away whose byte is locked (peers.h);
 *   - `meters` are moved by single atomic operations only.
 *
 * Words named `before` were of the limiter by cost: shims of before that still run read or write
 * them, and nothing else does. The layout is frozen per VCUDA_REGION_ABI. Python learns it from the
 * compiler through cffi: no other copy of it exists.
 */
#ifndef VCUDA_REGION_H
#define VCUDA_REGION_H

#ifndef VCUDA_CDEF /* the text given to cffi has no includes */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#endif

#ifdef VCUDA_PLAIN /* cffi's glue sees the same layout without qualifiers */
#define VCUDA_ATOMIC(type) type
#else
#define VCUDA_ATOMIC(type) _Atomic(type)
#endif

enum {
    VCUDA_REGION_ABI = 3,
    VCUDA_CONFIG_MAGIC = 0x47464356, /* "VCFG" */
    VCUDA_BOOKS_MAGIC = 0x534b4256,  /* "VBKS" */
    VCUDA_DEVICES = 16,
    VCUDA_SLOTS = 1024,
    VCUDA_NAME_SIZE = 96,
    VCUDA_ALIVE_BYTE = 16, /* in the books: of slot 0 */

    /* In a container with at most so many devices, used[VCUDA_BESIDE + device] is how much of
     * used[device] is managed memory, and context[VCUDA_BESIDE + device] how much memory of other
     * processes is open, which is not in used[device]. pending[VCUDA_BESIDE + device] is how much
     * of used[device] other processes may hold, too, by handles of it: if the owner dies, that much
     * stays charged until it is measured who holds it. The slot's owner writes all three. Managers
     * and shims of before sum only the devices they know, and empty these words with the slot. */
    VCUDA_BESIDE = VCUDA_DEVICES / 2,
};

/* What the container may use of one GPU. Each word is read on its own; a change needs no lock. */
struct vcuda_limit {
    uint8_t uuid[16];                    /* the GPU, as cuDeviceGetUuid says it */
    VCUDA_ATOMIC(uint64_t) memory_bytes; /* hard limit; 0 refuses everything */
    VCUDA_ATOMIC(uint32_t) core_percent; /* guaranteed share, 1-99; 100 or more: no limit */
    VCUDA_ATOMIC(uint32_t) core_ceiling; /* may burst up to this; equal to core_percent if not */
    uint8_t before[8];
    VCUDA_ATOMIC(uint64_t) context_bytes; /* what the driver is known to take for one context */
    uint8_t before_too[24];
    uint8_t reserved[56];
};

struct vcuda_config {
    uint32_t magic;
    uint32_t abi;
    uint32_t size; /* of this struct: mapped and checked by the reader */
    uint32_t device_count;
    VCUDA_ATOMIC(uint64_t) generation; /* grows with each change */
    char allocation[VCUDA_NAME_SIZE];  /* for people: the allocation's name, 0-terminated */
    uint8_t reserved[8];
    struct vcuda_limit limits[VCUDA_DEVICES];
};

/* Who owns a slot. pid 0: free. start_time is field 22 of /proc/<pid>/stat, against pid reuse. */
struct vcuda_slot {
    VCUDA_ATOMIC(uint32_t) pid;
    VCUDA_ATOMIC(uint32_t)
    flags; /* by the owner: VCUDA_DEGRADED_*, VCUDA_UNLIMITED, VCUDA_EXPLORES; above:
              its namespace */
    VCUDA_ATOMIC(uint64_t) start_time;
};

enum {
    VCUDA_DEGRADED_LOCK = 1,   /* no file lock that says it lives: the program closed the file */
    VCUDA_DEGRADED_TIMING = 2, /* of shims of before: timing events fail in a stream */
    VCUDA_DEGRADED_ENTRY = 4,  /* the driver returned an entry point the shim could not place, or
                                  made memory at a location that the shim does not know */
    VCUDA_DEGRADED_MEASURE =
        8,                /* what the driver takes by itself is, or was, charged by estimate */
    VCUDA_UNLIMITED = 16, /* no degradation: functions that allocate or launch could not be placed,
                             and the program has the driver's own */
    VCUDA_DEGRADED_MASK = 0x6f,
    VCUDA_EXPLORES = 0x80,     /* no degradation: of shims of before */
    VCUDA_NAMESPACE_SHIFT = 8, /* above: of the owner's pid namespace, 0 if it cannot tell */
};

/* Per device, shared by all processes of the container; a cache line pair each. */
struct vcuda_meter {
    VCUDA_ATOMIC(uint64_t)
    virtual_time; /* without an arbiter: ns of CLOCK_MONOTONIC up to which is paid */
    VCUDA_ATOMIC(uint64_t) charged_ns;   /* GPU time charged so far */
    VCUDA_ATOMIC(uint64_t) throttled_ns; /* time launches were made to wait */
    VCUDA_ATOMIC(uint64_t) launches;
    VCUDA_ATOMIC(uint64_t) memory_peak;   /* most bytes reserved at once */
    VCUDA_ATOMIC(uint64_t) memory_denied; /* reservations refused at the limit */
    VCUDA_ATOMIC(uint64_t) throttled;     /* launches made to wait */
    uint8_t before[72];
};

struct vcuda_books {
    uint32_t magic;
    uint32_t abi;
    uint32_t size;
    VCUDA_ATOMIC(uint32_t) slot_limit; /* slots at or above this were never used */
    uint8_t boot[16]; /* boot_id of the kernel they count under: none of it outlives a reboot */
    uint8_t before[64];
    uint8_t reserved[32];
    struct vcuda_meter meters[VCUDA_DEVICES];
    struct vcuda_slot slots[VCUDA_SLOTS];
    VCUDA_ATOMIC(uint64_t) used[VCUDA_DEVICES][VCUDA_SLOTS];     /* bytes, by the slot's owner */
    VCUDA_ATOMIC(uint64_t) overhead[VCUDA_DEVICES][VCUDA_SLOTS]; /* bytes, by the manager */
    VCUDA_ATOMIC(uint64_t) context[VCUDA_DEVICES][VCUDA_SLOTS];  /* bytes, by the slot's owner */
    VCUDA_ATOMIC(uint64_t) pending[VCUDA_DEVICES][VCUDA_SLOTS];  /* bytes announced, undecided */
    VCUDA_ATOMIC(uint32_t) inner_pid[VCUDA_SLOTS]; /* the owner, in its own pid namespace */
    VCUDA_ATOMIC(uint32_t)
    activity[VCUDA_SLOTS];                       /* calls begun that move memory, by the slot's
                                                    owner; the low bits: how many are under way */
    VCUDA_ATOMIC(uint32_t) samples[VCUDA_SLOTS]; /* measurements entered, by the manager */
    VCUDA_ATOMIC(uint32_t) looks[VCUDA_SLOTS];   /* and those it began to enter */
    uint8_t before_too[VCUDA_DEVICES][4160];
};

enum {
    VCUDA_ACTIVITY_UNDER_WAY = 0xfff, /* mask */
    VCUDA_ACTIVITY_BEGUN = 0x1000,    /* one call */
};

#ifndef VCUDA_CDEF
_Static_assert(sizeof(struct vcuda_limit) == 128, "frozen");
_Static_assert(offsetof(struct vcuda_config, limits) == 128, "frozen");
_Static_assert(sizeof(struct vcuda_config) == 128 + 128 * VCUDA_DEVICES, "frozen");
_Static_assert(sizeof(struct vcuda_slot) == 16, "frozen");
_Static_assert(sizeof(struct vcuda_meter) == 128, "frozen");
_Static_assert(offsetof(struct vcuda_books, meters) == 128, "frozen");
_Static_assert(offsetof(struct vcuda_books, slots) == 128 + 128 * VCUDA_DEVICES, "frozen");
_Static_assert(offsetof(struct vcuda_books, before_too) ==
                   128 + 128 * VCUDA_DEVICES + (16 + 32 * VCUDA_DEVICES + 16) * VCUDA_SLOTS,
               "frozen");
_Static_assert(sizeof(struct vcuda_books) ==
                   offsetof(struct vcuda_books, before_too) + 4160 * VCUDA_DEVICES,
               "frozen");
#endif

#endif
