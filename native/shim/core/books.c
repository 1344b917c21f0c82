#include "core/books.h"

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

static uint64_t add(uint64_t left, uint64_t right)
{
    return left > UINT64_MAX - right ? UINT64_MAX : left + right;
}

/* Order: the file lock orders reservations; a release may be seen late, which errs to refusal. */
uint64_t books_total(const struct books *books, unsigned device)
{
    const struct vcuda_books *page = books->page;
    uint32_t slots = atomic_load_explicit(&page->slot_limit, memory_order_acquire);
    uint64_t total = 0;
    for (uint32_t slot = 0; slot < slots && slot < VCUDA_SLOTS; slot++) {
        total = add(total, atomic_load(&page->used[device][slot]));
        total = add(total, atomic_load(&page->overhead[device][slot]));
    }
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

/* Enter, then look. Of two that do not fit together at least one sees the other, lock or no lock.
 */
static int enter(struct books *books, unsigned device, uint64_t bytes, uint64_t limit)
{
    atomic_fetch_add(&books->page->used[device][books->slot], bytes);
    uint64_t total = books_total(books, device);
    if (total > limit) {
        books_release(books, device, bytes);
        return -EDQUOT;
    }
    raise_peak(&books->page->meters[device], total);
    return 0;
}

/* With the file lock: look first, so that what does not fit is never entered. Who had to do without
 * the lock may still come between, hence the second look. */
static int reserve_locked(struct books *books, unsigned device, uint64_t bytes, uint64_t limit)
{
    if (!fits(books_total(books, device), bytes, limit))
        return -EDQUOT;
    return enter(books, device, bytes, limit);
}

/* Without it: may refuse while there is room, when two enter at once; never exceeds the limit. */
static int reserve_unlocked(struct books *books, unsigned device, uint64_t bytes, uint64_t limit)
{
    return bytes > limit ? -EDQUOT : enter(books, device, bytes, limit);
}

static int reserve(struct books *books, unsigned device, uint64_t bytes, uint64_t limit)
{
    if (lock_device(books, device) != 0) {
        books_degrade(books, VCUDA_DEGRADED_LOCK);
        return reserve_unlocked(books, device, bytes, limit);
    }
    int error = reserve_locked(books, device, bytes, limit);
    lock_try(books, device, F_UNLCK);
    return error;
}

int books_reserve(struct books *books, unsigned device, uint64_t bytes, uint64_t limit)
{
    pthread_mutex_lock(&books->mutexes[device]);
    int error = reserve(books, device, bytes, limit);
    pthread_mutex_unlock(&books->mutexes[device]);
    if (error != 0)
        atomic_fetch_add(&books->page->meters[device].memory_denied, 1);
    return error;
}

void books_release(struct books *books, unsigned device, uint64_t bytes)
{
    VCUDA_ATOMIC(uint64_t) *used = &books->page->used[device][books->slot];
    uint64_t held = atomic_load(used);
    while (!atomic_compare_exchange_weak(used, &held, held > bytes ? held - bytes : 0))
        ;
}

void books_degrade(struct books *books, uint32_t flag)
{
    if (books->slot >= 0)
        atomic_fetch_or(&books->page->slots[books->slot].flags, flag);
}
