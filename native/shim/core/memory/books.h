/* Who holds how much device memory: reservations against the limit of one container.
 *
 * The page is shared by all processes of the container; each writes only its own slot's words, and
 * nobody takes a lock. A reservation announces its bytes in `pending`, then sums what everybody
 * holds or has announced, and only if that is within the limit enters them in `used`; either way it
 * takes the announcement back. Of two that do not fit together at least one sees the other, so that
 * never both enter: among all that are held, the one announced last saw all others. When two step
 * back for each other, they try again; so do those who see room that another has only announced.
 * A refusal needs what is *held* to leave no room, at one moment: two sums alike, word by word.
 *
 * A word is entered before its announcement is taken back, and announcements are read before
 * words, so that no sum misses bytes on their way. A process that dies leaves what it holds and at
 * most an announcement; the manager empties its slot, or a peer that is refused (peers.h). One that
 * is stopped in between makes those wait that need just these bytes, for a bounded time; then they
 * are refused.
 *
 * Any thread of the process. Nothing here calls the driver.
 */
#ifndef SHIM_CORE_MEMORY_BOOKS_H
#define SHIM_CORE_MEMORY_BOOKS_H

#include "vcuda_region.h"

#ifndef VCUDA_CDEF
#include "core/file_identity.h"

#include <pthread.h>
#include <stdatomic.h>
#endif

/* One process's hold on the books. All zero but page, fd and slot is a valid beginning. */
struct books {
    struct vcuda_books *page; /* mapped read-write, or read-only by an observer */
    int fd;                   /* of this process alone: its open file description owns its locks */
    int32_t slot;             /* whose words we write; below 0 only books_total() may be called */
    uint32_t devices;         /* the container's; 0 if not known */
#ifdef VCUDA_CDEF
    ...;
#else
    struct file_identity file;  /* what `fd` must be of to be ours; 0: anything */
    pthread_mutex_t estimating; /* guards the words of `context` among the process's threads */
    atomic_bool lost;           /* `fd` was found to be another file */
    _Atomic(uint64_t) looked;   /* for dead peers, ns of CLOCK_MONOTONIC_COARSE */
    atomic_bool looking;        /* a thread of ours is; file locks do not keep threads apart */
#endif
};

/* What is reserved for: the program's allocations, or what the driver takes by itself. */
enum books_word { BOOKS_USED, BOOKS_CONTEXT };

/* Reserve `bytes` on `device` if the container then holds no more than `limit`.
 * Returns 0, or -EDQUOT and nothing changed. Pair with books_give_back(). */
int books_take(struct books *books, enum books_word which, unsigned device, uint64_t bytes,
               uint64_t limit);

/* Give back what was reserved; never below zero. */
void books_give_back(struct books *books, enum books_word which, unsigned device, uint64_t bytes);

/* The two for the program's allocations. */
int books_reserve(struct books *books, unsigned device, uint64_t bytes, uint64_t limit);
void books_release(struct books *books, unsigned device, uint64_t bytes);

/* Enter what the driver has taken already and cannot be made to give back, whatever the limit. */
void books_admit(struct books *books, unsigned device, uint64_t bytes);

/* The same for what the driver may have taken by itself, until it is measured. */
void books_presume(struct books *books, unsigned device, uint64_t bytes);

/* Whatever was estimated has been measured. */
void books_settle(struct books *books, unsigned device);

/* Measurements of this process that the manager has entered so far. */
uint32_t books_samples(const struct books *books);

/* And those it began to enter. While this stands still and between slot_move_begin() and
 * slot_move_end(), none is entered. */
uint32_t books_looks(const struct books *books);

/* Say that of what is reserved so much more, or less, is managed memory, or that so much more of
 * other processes' is open here. While memory moves. devices: the container's. */
void books_manage(struct books *books, unsigned device, int64_t bytes, uint32_t devices);
void books_import(struct books *books, unsigned device, int64_t bytes, uint32_t devices);

/* Or that of what is reserved other processes may hold so much more, or less, too. */
void books_export(struct books *books, unsigned device, int64_t bytes);

/* Count a request that was refused at the limit. */
void books_deny(struct books *books, unsigned device);

/* Bytes held by the whole container on `device`, what the driver takes by itself included. */
uint64_t books_total(const struct books *books, unsigned device);

/* After a reservation of `bytes` was refused: what is to be done about it? Example, limit 100:
 * where programs have 95, 10 more do not fit whatever is measured; where they have 80 and the
 * driver 15 by itself, a measurement may find less; where they have 80, and had 95 a moment ago,
 * they fit now. */
enum books_room {
    BOOKS_FULL,   /* programs' own allocations alone left no room, at one moment */
    BOOKS_DRIVER, /* what the driver takes by itself is in the way */
    BOOKS_ROOM,   /* others have given back meanwhile, or are about to: try again */
};
enum books_room books_room(const struct books *books, unsigned device, uint64_t bytes,
                           uint64_t limit);

/* Whether anybody's memory moves: then the books may hold more than is needed in the end. */
bool books_moving(const struct books *books);

/* What differs when another process of the container has moved memory. */
uint64_t books_peers_moved(const struct books *books);

/* The descriptor is no longer of the books: to be mended by who can (session.h). */
void books_lose(struct books *books);

/* Tell the manager of a degradation, VCUDA_DEGRADED_*. */
void books_degrade(struct books *books, uint32_t flag);

#endif
