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
 *   - `meters`, `collectives` and `logbooks` are moved by single atomic operations only.
 *
 * The layout is frozen per VCUDA_REGION_ABI. Python learns it from the compiler through cffi: no
 * other copy of it exists.
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
    VCUDA_LOGGED = 64,     /* long launches that are remembered of a device */

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
    uint8_t uuid[16];                     /* the GPU, as cuDeviceGetUuid says it */
    VCUDA_ATOMIC(uint64_t) memory_bytes;  /* hard limit; 0 refuses everything */
    VCUDA_ATOMIC(uint32_t) core_percent;  /* guaranteed share, 1-99; 100 or more: no limit */
    VCUDA_ATOMIC(uint32_t) core_ceiling;  /* may burst up to this; equal to core_percent if not */
    VCUDA_ATOMIC(uint32_t) rate_ppm;      /* GPU time per time allowed now, in millionths */
    VCUDA_ATOMIC(uint32_t) burst_us;      /* how much unused time may be saved up */
    VCUDA_ATOMIC(uint64_t) context_bytes; /* what the driver is known to take for one context */
    VCUDA_ATOMIC(uint64_t)
    share_until;                       /* CLOCK_MONOTONIC, ns: after it, rate_ppm and others_ppm
                                          say nothing and the guarantee holds; 0: for good */
    VCUDA_ATOMIC(uint32_t) others_ppm; /* GPU time that others took of this GPU lately */
    VCUDA_ATOMIC(uint32_t)
    cost_ppm;                        /* what costs learnt from events are to be multiplied by,
                                        in millionths, until share_until; 0: by 1 */
    VCUDA_ATOMIC(uint32_t) long_ppm; /* the same of launches longer than a time slice */
    VCUDA_ATOMIC(uint32_t)
    neighbours; /* processes of others, at most, that may have time slices
                   of this GPU; says nothing where others_ppm does not */
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
    VCUDA_DEGRADED_TIMING = 2, /* timing events fail in a stream: it pays by elapsed time */
    VCUDA_DEGRADED_ENTRY = 4,  /* the driver returned an entry point the shim could not place, or
                                  made memory at a location that the shim does not know */
    VCUDA_DEGRADED_MEASURE =
        8,                /* what the driver takes by itself is, or was, charged by estimate */
    VCUDA_UNLIMITED = 16, /* no degradation: functions that allocate or launch could not be placed,
                             and the program has the driver's own */
    VCUDA_DEGRADED_MASK = 0x6f,
    VCUDA_EXPLORES = 0x80, /* no degradation: it has launched what it does not know the cost of */
    VCUDA_NAMESPACE_SHIFT = 8, /* above: of the owner's pid namespace, 0 if it cannot tell */
};

/* Per device, shared by all processes of the container; a cache line pair each. */
struct vcuda_meter {
    VCUDA_ATOMIC(uint64_t) virtual_time; /* limiter: ns of CLOCK_MONOTONIC up to which is paid */
    VCUDA_ATOMIC(uint64_t) charged_ns;   /* GPU time charged so far */
    VCUDA_ATOMIC(uint64_t) throttled_ns; /* time launches were made to wait */
    VCUDA_ATOMIC(uint64_t) launches;
    VCUDA_ATOMIC(uint64_t) memory_peak;   /* most bytes reserved at once */
    VCUDA_ATOMIC(uint64_t) memory_denied; /* reservations refused at the limit */
    VCUDA_ATOMIC(uint64_t) throttled;     /* launches made to wait */
    VCUDA_ATOMIC(uint64_t)
    served_until;                      /* limiter: ns of CLOCK_MONOTONIC up to which the container
                                          is known to have had work on the GPU */
    VCUDA_ATOMIC(uint64_t) retired_ns; /* of charged_ns: for work that is known to have ended */
    VCUDA_ATOMIC(uint64_t)
    turn; /* limiter: who launched last, and when (core/time/arbitration.h) */
    VCUDA_ATOMIC(uint64_t)
    waiting_served; /* limiter: GPU time that the waiting process which has had
                       least has had, in ns; 0: nobody waits (core/time/arbitration.h) */
    VCUDA_ATOMIC(uint64_t)
    held_until;                        /* limiter: no turn for others until then; CLOCK_MONOTONIC,
                                          ns, as the next */
    VCUDA_ATOMIC(uint64_t) turn_since; /* limiter: when that one's burst began */
    VCUDA_ATOMIC(uint64_t)
    drained_at; /* limiter: when all that was charged has ended, without
                   neighbours */
    VCUDA_ATOMIC(uint64_t)
    alone_since; /* limiter: drained_at, when the turn last went to another process */
    VCUDA_ATOMIC(uint64_t)
    awaited_ns; /* beside others: time threads waited for their work to end */
};

/* One launch longer than the GPU's time slices, as the process saw it that made it. Each word is a
 * hint: whoever reads them looks at `ticket` before and after (core/time/logbook.h). */
struct vcuda_logged {
    VCUDA_ATOMIC(uint64_t) ticket;  /* which one it is, counted from 1; 0: none, or being written */
    VCUDA_ATOMIC(uint64_t) slot;    /* whose */
    VCUDA_ATOMIC(uint64_t) begun;   /* CLOCK_MONOTONIC, ns; behind what was launched before it */
    VCUDA_ATOMIC(uint64_t) ended;   /* 0: it is not known to have */
    VCUDA_ATOMIC(uint64_t) cost_ns; /* what it took by all that events say */
    VCUDA_ATOMIC(uint64_t) charged_ns; /* what was charged for it; 0: it was none of these */
    uint8_t reserved[16];
};

/* Of one device. Written by all processes of the container, read by the manager. */
struct vcuda_logbook {
    VCUDA_ATOMIC(uint64_t) last;       /* ticket */
    VCUDA_ATOMIC(uint64_t) charged_ns; /* of the meter's: for all launches ever logged here */
    VCUDA_ATOMIC(uint64_t)
    served_ns; /* limiter: what whoever launched last had had (core/time/arbitration.h);
                  the meter is full */
    uint8_t reserved[40];
    struct vcuda_logged of[VCUDA_LOGGED]; /* each in the place of its ticket */
};

struct vcuda_books {
    uint32_t magic;
    uint32_t abi;
    uint32_t size;
    VCUDA_ATOMIC(uint32_t) slot_limit; /* slots at or above this were never used */
    uint8_t boot[16]; /* boot_id of the kernel they count under: none of it outlives a reboot */
    VCUDA_ATOMIC(uint32_t) collectives[VCUDA_DEVICES]; /* launched, and when (core/time/gang.h) */
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
    struct vcuda_logbook logbooks[VCUDA_DEVICES];
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
_Static_assert(sizeof(struct vcuda_logged) == 64, "frozen");
_Static_assert(sizeof(struct vcuda_logbook) == 64 + 64 * VCUDA_LOGGED, "frozen");
_Static_assert(offsetof(struct vcuda_books, logbooks) ==
                   128 + 128 * VCUDA_DEVICES + (16 + 32 * VCUDA_DEVICES + 16) * VCUDA_SLOTS,
               "frozen");
_Static_assert(sizeof(struct vcuda_books) == offsetof(struct vcuda_books, logbooks) +
                                                 sizeof(struct vcuda_logbook) * VCUDA_DEVICES,
               "frozen");
#endif

#endif
