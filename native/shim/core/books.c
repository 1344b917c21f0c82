#include "core/books.h"

#include "core/slot.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

enum {
    LOCK_YIELDS = 16, /* a holder needs microseconds: look again at once, then sleep */
    LOCK_SLEEP_NS = 50 * 1000,
    LOCK_SLEEPS = 20 * 1000, /* about a second and a half; a holder is stopped, not slow */
};

/* Order: the file lock orders reservations; a release may be seen late, which errs to refusal. */
uint64_t books_total(const struct books *books, unsigned device)
{
    const struct vcuda_books *page = books->page;
    uint32_t slots = atomic_load_explicit(&page->slot_limit, memory_order_acquire);
    uint64_t total = 0;
    for (uint32_t slot = 0; slot < slots && slot < VCUDA_SLOTS; slot++)
        total = slot_add(total, slot_bytes(page, device, slot));
    return total;
}

static int lock_try(const struct books *books, unsigned device, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = device, .l_len = 1};
    return fcntl(books->fd, F_OFD_SETLK, &lock) == 0 ? 0 : -errno;
}

/* A lock on a file of the program's own would keep nobody apart, and could hurt the program. */
static bool still_ours(const struct books *books)
{
    return books->file.inode == 0 || file_same(file_identity(books->fd), books->file);
}

/* Wait for the device's file lock, but not for ever: a stopped holder must not stop its peers. */
static int lock_device(const struct books *books, unsigned device)
{
    const struct timespec pause = {.tv_nsec = LOCK_SLEEP_NS};
    if (!still_ours(books))
        return -EBADF;
    int error = lock_try(books, device, F_WRLCK);
    for (int turn = 0; error != 0 && turn < LOCK_YIELDS + LOCK_SLEEPS; turn++) {
        if (error != -EAGAIN && error != -EACCES && error != -EINTR)
            return error;
        if (turn < LOCK_YIELDS)
            sched_yield();
        else
            nanosleep(&pause, NULL);
        error = lock_try(books, device, F_WRLCK);
    }
    return error;
}

static void raise_peak(struct vcuda_meter *meter, uint64_t total)
{
    uint64_t peak = atomic_load_explicit(&meter->memory_peak, memory_order_relaxed);
    while (peak < total && !atomic_compare_exchange_weak(&meter->memory_peak, &peak, total))
        ;
}

static bool fits(uint64_t total, uint64_t bytes, uint64_t limit)
{
    return total <= limit && bytes <= limit - total;
}

/* A word of this process's slot, and what to put there for some bytes more. */
static VCUDA_ATOMIC(uint64_t) * word_of(struct books *books, enum books_word which, unsigned device)
{
    struct vcuda_books *page = books->page;
    return which == BOOKS_USED ? &page->used[device][books->slot]
                               : &page->context[device][books->slot];
}

/* Estimates add to what was measured, if that is more than was estimated before. */
static uint64_t raised(const struct books *books, enum books_word which, unsigned device,
                       uint64_t old, uint64_t bytes)
{
    if (which == BOOKS_CONTEXT)
        old = slot_driver_bytes(books->page, device, (uint32_t)books->slot);
    return slot_add(old, bytes);
}

/* Enter, then look. Of two that do not fit together at least one sees the other, lock or no lock.
 */
static int enter(struct books *books, enum books_word which, unsigned device, uint64_t bytes,
                 uint64_t limit)
{
    VCUDA_ATOMIC(uint64_t) *word = word_of(books, which, device);
    uint64_t old = atomic_load(word);
    uint64_t added = raised(books, which, device, old, bytes) - old;
    atomic_fetch_add(word, added); /* a release by another thread may come between */
    uint64_t total = books_total(books, device);
    if (total > limit) {
        books_give_back(books, which, device, added);
        return -EDQUOT;
    }
    raise_peak(&books->page->meters[device], total);
    return 0;
}

/* With the file lock: look first, so that what does not fit is never entered. Who had to do without
 * the lock may still come between, hence the second look. */
static int reserve_locked(struct books *books, enum books_word which, unsigned device,
                          uint64_t bytes, uint64_t limit)
{
    if (!fits(books_total(books, device), bytes, limit))
        return -EDQUOT;
    return enter(books, which, device, bytes, limit);
}

/* Without it: may refuse while there is room, when two enter at once; never exceeds the limit. */
static int reserve_unlocked(struct books *books, enum books_word which, unsigned device,
                            uint64_t bytes, uint64_t limit)
{
    return bytes > limit ? -EDQUOT : enter(books, which, device, bytes, limit);
}

static int reserve(struct books *books, enum books_word which, unsigned device, uint64_t bytes,
                   uint64_t limit)
{
    if (lock_device(books, device) != 0) {
        books_degrade(books, VCUDA_DEGRADED_LOCK);
        return reserve_unlocked(books, which, device, bytes, limit);
    }
    int error = reserve_locked(books, which, device, bytes, limit);
    lock_try(books, device, F_UNLCK);
    return error;
}

int books_take(struct books *books, enum books_word which, unsigned device, uint64_t bytes,
               uint64_t limit)
{
    pthread_mutex_lock(&books->mutexes[device]);
    int error = reserve(books, which, device, bytes, limit);
    pthread_mutex_unlock(&books->mutexes[device]);
    return error;
}

void books_give_back(struct books *books, enum books_word which, unsigned device, uint64_t bytes)
{
    VCUDA_ATOMIC(uint64_t) *word = word_of(books, which, device);
    uint64_t held = atomic_load(word);
    while (!atomic_compare_exchange_weak(word, &held, held > bytes ? held - bytes : 0))
        ;
}

int books_reserve(struct books *books, unsigned device, uint64_t bytes, uint64_t limit)
{
    return books_take(books, BOOKS_USED, device, bytes, limit);
}

void books_release(struct books *books, unsigned device, uint64_t bytes)
{
    books_give_back(books, BOOKS_USED, device, bytes);
}

void books_admit(struct books *books, unsigned device, uint64_t bytes)
{
    atomic_fetch_add(word_of(books, BOOKS_USED, device), bytes);
    raise_peak(&books->page->meters[device], books_total(books, device));
}

void books_deny(struct books *books, unsigned device)
{
    atomic_fetch_add(&books->page->meters[device].memory_denied, 1);
}

void books_degrade(struct books *books, uint32_t flag)
{
    if (books->slot >= 0)
        atomic_fetch_or(&books->page->slots[books->slot].flags, flag);
}
