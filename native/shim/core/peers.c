#include "core/peers.h"

#include "core/life.h"
#include "core/memory/slot.h"
#include "core/step.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum {
    JOIN_TRIES = 50, /* of 0.1 ms: a peer looks for some microseconds */
    JOIN_PAUSE_NS = 100 * 1000,
    LOOK_PAUSE_NS = 5 * 1000 * 1000, /* between two looks of one process */
    TICKS = 2,                       /* start times are rounded in time namespaces */
};

/* Who a slot was given to, as far as a peer can tell. */
struct owner {
    uint32_t pid;
    uint32_t inner_pid;
    uint32_t namespace;
    uint64_t start_time;
};

static struct owner owner_of(const struct vcuda_books *page, uint32_t slot)
{
    /* acquire: pairs with the manager's release of the pid */
    uint32_t pid = atomic_load_explicit(&page->slots[slot].pid, memory_order_acquire);
    return (struct owner){
        .pid = pid,
        .inner_pid = atomic_load(&page->inner_pid[slot]),
        .namespace = atomic_load(&page->slots[slot].flags) >> VCUDA_NAMESPACE_SHIFT,
        .start_time = atomic_load(&page->slots[slot].start_time),
    };
}

static int lock_alive(const struct books *books, uint32_t slot, short type)
{
    struct flock lock = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = VCUDA_ALIVE_BYTE + slot, .l_len = 1};
    int result;
    do
        result = fcntl(books->fd, F_OFD_SETLK, &lock);
    while (result != 0 && errno == EINTR);
    return result == 0 ? 0 : -errno;
}

/* A lock on a file of the program's own would tell nothing, and could hurt the program. */
bool peers_descriptor_kept(const struct books *books)
{
    return books->file.inode == 0 || file_same(file_identity(books->fd), books->file);
}

int peers_join(struct books *books)
{
    const struct timespec pause = {.tv_nsec = JOIN_PAUSE_NS};
    uint32_t slot = (uint32_t)books->slot;
    atomic_fetch_or(&books->page->slots[slot].flags, life_pid_namespace() << VCUDA_NAMESPACE_SHIFT);
    SHIM_STEP();
    int error = lock_alive(books, slot, F_WRLCK);
    SHIM_STEP();
    for (int tries = 0; (error == -EAGAIN || error == -EACCES) && tries < JOIN_TRIES; tries++) {
        nanosleep(&pause, NULL);
        error = lock_alive(books, slot, F_WRLCK);
    }
    return error;
}

/* In a time namespace start times are shifted, for all processes by as much as for this one. */
static bool started_at(const struct books *books, uint64_t shown, uint64_t recorded)
{
    struct life own;
    if (!life_read(getpid(), &own))
        return true;
    uint64_t own_recorded = atomic_load(&books->page->slots[books->slot].start_time);
    int64_t difference = (int64_t)((shown - recorded) - (own.start_time - own_recorded));
    return difference >= -TICKS && difference <= TICKS;
}

static bool seen_dead(const struct books *books, struct owner owner)
{
    struct life life;
    if (owner.pid == 0 || owner.inner_pid == 0 || owner.namespace != life_pid_namespace())
        return false;
    if (kill((pid_t)owner.inner_pid, 0) != 0)
        return errno == ESRCH;
    if (!life_read((int)owner.inner_pid, &life))
        return false; /* hidden from us, or just now gone: then another time */
    return life.ended || !started_at(books, life.start_time, owner.start_time);
}

static void empty_word(VCUDA_ATOMIC(uint64_t) * word, uint64_t found)
{
    if (found != 0)
        atomic_compare_exchange_strong(word, &found, 0);
}

/* What a slot held on each device before its owner was looked for. */
struct words {
    uint64_t used[VCUDA_DEVICES], context[VCUDA_DEVICES];
    uint64_t overhead[VCUDA_DEVICES], pending[VCUDA_DEVICES];
    uint64_t exported[VCUDA_DEVICES]; /* that others may hold: stays charged */
};

static void read_words(struct books *books, uint32_t slot, struct words *words)
{
    struct vcuda_books *page = books->page;
    for (unsigned device = 0; device < VCUDA_DEVICES; device++) {
        words->used[device] = atomic_load(&page->used[device][slot]);
        words->context[device] = atomic_load(&page->context[device][slot]);
        words->overhead[device] = atomic_load(&page->overhead[device][slot]);
        words->pending[device] = atomic_load(&page->pending[device][slot]);
        words->exported[device] = slot_exported(page, device, slot, books->devices);
    }
}

/* Example: it had 5 GiB, of which another process has imported 1 GiB. That one holds it still and
 * is charged for it when the manager measures; until then 1 GiB stays here, as the driver's own. */
static void empty(struct books *books, uint32_t slot, const struct words *words)
{
    struct vcuda_books *page = books->page;
    bool beside = books->devices > 0 && books->devices <= VCUDA_BESIDE;
    for (unsigned device = 0; device < VCUDA_DEVICES; device++) {
        uint64_t context = words->context[device];
        if (context != words->exported[device])
            atomic_compare_exchange_strong(&page->context[device][slot], &context,
                                           words->exported[device]);
        SHIM_STEP();
        empty_word(&page->used[device][slot], words->used[device]);
        SHIM_STEP();
        empty_word(&page->overhead[device][slot], words->overhead[device]);
        if (!beside || device < VCUDA_BESIDE)
            empty_word(&page->pending[device][slot], words->pending[device]);
    }
}

/* Between peers_begin() and peers_end(). */
static bool reclaim_slot(struct books *books, uint32_t slot)
{
    struct words words;
    if (lock_alive(books, slot, F_WRLCK) != 0)
        return false;
    SHIM_STEP();
    read_words(books, slot, &words);
    bool dead = seen_dead(books, owner_of(books->page, slot));
    SHIM_STEP();
    if (dead)
        empty(books, slot, &words);
    SHIM_STEP();
    lock_alive(books, slot, F_UNLCK);
    return dead;
}

static bool holds(const struct vcuda_books *page, unsigned device, uint32_t slot)
{
    return slot_bytes(page, device, slot) != 0 || atomic_load(&page->pending[device][slot]) != 0;
}

/* Between peers_begin() and peers_end(). */
static bool reclaim(struct books *books, unsigned device)
{
    const struct vcuda_books *page = books->page;
    uint32_t slots = atomic_load_explicit(&page->slot_limit, memory_order_acquire);
    bool any = false;
    for (uint32_t slot = 0; slot < slots && slot < VCUDA_SLOTS; slot++)
        if (slot != (uint32_t)books->slot && holds(page, device, slot))
            any |= reclaim_slot(books, slot);
    return any;
}

static uint64_t coarse_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static bool due(struct books *books)
{
    uint64_t now = coarse_now(), looked = atomic_load(&books->looked);
    return (looked == 0 || now - looked >= LOOK_PAUSE_NS) &&
           atomic_compare_exchange_strong(&books->looked, &looked, now);
}

bool peers_begin(struct books *books)
{
    /* acquire, and release below: what one thread did with the locks is done for the next */
    return !atomic_exchange_explicit(&books->looking, true, memory_order_acquire);
}

void peers_end(struct books *books)
{
    atomic_store_explicit(&books->looking, false, memory_order_release);
}

bool peers_reclaim(struct books *books, unsigned device)
{
    if (!due(books) || !peers_begin(books))
        return false;
    bool any = false;
    if (peers_descriptor_kept(books))
        any = reclaim(books, device);
    else
        books_lose(books);
    peers_end(books);
    return any;
}
