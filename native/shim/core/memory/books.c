#include "core/memory/books.h"

#include "core/memory/slot.h"
#include "core/peers.h"
#include "core/step.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <time.h>

enum {
    TURNS_AT_ONCE = 16, /* to decide takes nanoseconds: look again soon, then sleep */
    TURNS = 4000,       /* about half a second; who has not decided by then is stopped, not slow */
    PAUSE_NS = 50 * 1000,
    LOOK_EVERY = 32, /* turns: who has announced may be dead */
};

/* What was seen of one device. */
struct sum {
    uint64_t held;
    uint64_t pending;
    uint64_t mark; /* of the words held, each in its place */
};

static uint32_t slots_used(const struct vcuda_books *page)
{
    /* Pairs with the release in region.c: a slot is counted before its owner can reserve. */
    uint32_t slots = atomic_load_explicit(&page->slot_limit, memory_order_acquire);
    return slots < VCUDA_SLOTS ? slots : VCUDA_SLOTS;
}

static struct sum collect(const struct vcuda_books *page, unsigned device)
{
    struct sum sum = {0};
    for (uint32_t slot = slots_used(page); slot-- > 0;) {
        sum.pending = slot_add(sum.pending, atomic_load(&page->pending[device][slot]));
        uint64_t held = slot_bytes(page, device, slot);
        sum.held = slot_add(sum.held, held);
        sum.mark = (sum.mark ^ held) * UINT64_C(0x100000001b3);
    }
    return sum;
}

uint64_t books_total(const struct books *books, unsigned device)
{
    return collect(books->page, device).held;
}

uint64_t books_peers_moved(const struct books *books)
{
    uint64_t mark = 0;
    for (uint32_t slot = slots_used(books->page); slot-- > 0;)
        if (slot != (uint32_t)books->slot)
            mark = (mark ^ atomic_load(&books->page->activity[slot])) * UINT64_C(0x100000001b3);
    return mark;
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

static uint64_t used_of(const struct vcuda_books *page, unsigned device)
{
    uint64_t used = 0;
    for (uint32_t slot = slots_used(page); slot-- > 0;)
        used = slot_add(used, atomic_load(&page->used[device][slot]));
    return used;
}

enum books_room books_room(const struct books *books, unsigned device, uint64_t bytes,
                           uint64_t limit)
{
    struct sum sum = collect(books->page, device);
    uint64_t used = used_of(books->page, device);
    if (fits(sum.held, bytes, limit) || collect(books->page, device).mark != sum.mark)
        return BOOKS_ROOM;
    return fits(used, bytes, limit) ? BOOKS_DRIVER : BOOKS_FULL;
}

bool books_moving(const struct books *books)
{
    for (uint32_t slot = slots_used(books->page); slot-- > 0;)
        if ((atomic_load(&books->page->activity[slot]) & VCUDA_ACTIVITY_UNDER_WAY) != 0)
            return true;
    return false;
}

static VCUDA_ATOMIC(uint64_t) * word_of(struct books *books, enum books_word which, unsigned device)
{
    struct vcuda_books *page = books->page;
    return which == BOOKS_USED ? &page->used[device][books->slot]
                               : &page->context[device][books->slot];
}

static void lower(VCUDA_ATOMIC(uint64_t) * word, uint64_t bytes)
{
    uint64_t held = atomic_load(word);
    SHIM_STEP();
    while (!atomic_compare_exchange_weak(word, &held, held > bytes ? held - bytes : 0))
        ;
    SHIM_STEP();
}

/* Estimates add to what was measured, if that is more than was estimated before. */
static void enter(struct books *books, enum books_word which, unsigned device, uint64_t bytes)
{
    VCUDA_ATOMIC(uint64_t) *word = word_of(books, which, device);
    uint64_t held = atomic_load(word);
    uint64_t base = slot_driver_bytes(books->page, device, (uint32_t)books->slot);
    if (which == BOOKS_CONTEXT && base > held)
        bytes += base - held;
    atomic_fetch_add(word, bytes);
}

/* Announce, look, decide. */
static bool try_to_enter(struct books *books, enum books_word which, unsigned device,
                         uint64_t bytes, uint64_t limit)
{
    VCUDA_ATOMIC(uint64_t) *pending = &books->page->pending[device][books->slot];
    SHIM_STEP();
    atomic_fetch_add(pending, bytes);
    SHIM_STEP();
    struct sum sum = collect(books->page, device);
    bool room = fits(sum.held, sum.pending, limit);
    SHIM_STEP();
    if (room)
        enter(books, which, device, bytes);
    SHIM_STEP();
    atomic_fetch_sub(pending, bytes);
    SHIM_STEP();
    if (room)
        raise_peak(&books->page->meters[device], slot_add(sum.held, bytes));
    return room;
}

/* 0, -EDQUOT, or -EAGAIN: others have announced more than there is room for, or it is changing. */
static int attempt(struct books *books, enum books_word which, unsigned device, uint64_t bytes,
                   uint64_t limit)
{
    struct sum sum = collect(books->page, device);
    if (!fits(sum.held, bytes, limit))
        return collect(books->page, device).mark == sum.mark ? -EDQUOT : -EAGAIN;
    if (!fits(slot_add(sum.held, sum.pending), bytes, limit))
        return -EAGAIN;
    SHIM_STEP();
    return try_to_enter(books, which, device, bytes, limit) ? 0 : -EAGAIN;
}

static void pause_for(int turn)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    if (turn < TURNS_AT_ONCE)
        sched_yield();
    else
        nanosleep(&pause, NULL);
}

static int wait_and_take(struct books *books, enum books_word which, unsigned device,
                         uint64_t bytes, uint64_t limit)
{
    int error = -EAGAIN;
    for (int turn = 0; error == -EAGAIN && turn < TURNS; turn++) {
        pause_for(turn);
        if (turn % LOOK_EVERY == LOOK_EVERY - 1)
            peers_reclaim(books, device);
        error = attempt(books, which, device, bytes, limit);
    }
    return error;
}

/* Who is refused looks for what the dead still hold, and then once more. */
static int insist(struct books *books, enum books_word which, unsigned device, uint64_t bytes,
                  uint64_t limit, int error)
{
    if (error == -EAGAIN)
        error = wait_and_take(books, which, device, bytes, limit);
    if (error != 0 && peers_reclaim(books, device)) {
        error = attempt(books, which, device, bytes, limit);
        if (error == -EAGAIN)
            error = wait_and_take(books, which, device, bytes, limit);
    }
    return error == 0 ? 0 : -EDQUOT;
}

/* A thread that is cancelled while it waits would leave what it holds locked. */
static int take(struct books *books, enum books_word which, unsigned device, uint64_t bytes,
                uint64_t limit)
{
    int cancelled, error = attempt(books, which, device, bytes, limit);
    if (error == 0)
        return 0;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled);
    error = insist(books, which, device, bytes, limit, error);
    pthread_setcancelstate(cancelled, NULL);
    return error;
}

int books_take(struct books *books, enum books_word which, unsigned device, uint64_t bytes,
               uint64_t limit)
{
    if (which == BOOKS_USED)
        return take(books, which, device, bytes, limit);
    int cancelled;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled);
    pthread_mutex_lock(&books->estimating);
    int error = take(books, which, device, bytes, limit);
    pthread_mutex_unlock(&books->estimating);
    pthread_setcancelstate(cancelled, NULL);
    return error;
}

void books_give_back(struct books *books, enum books_word which, unsigned device, uint64_t bytes)
{
    lower(word_of(books, which, device), bytes);
}

int books_reserve(struct books *books, unsigned device, uint64_t bytes, uint64_t limit)
{
    return take(books, BOOKS_USED, device, bytes, limit);
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

void books_presume(struct books *books, unsigned device, uint64_t bytes)
{
    pthread_mutex_lock(&books->estimating);
    enter(books, BOOKS_CONTEXT, device, bytes);
    pthread_mutex_unlock(&books->estimating);
}

void books_settle(struct books *books, unsigned device)
{
    pthread_mutex_lock(&books->estimating);
    atomic_store(word_of(books, BOOKS_CONTEXT, device), 0);
    pthread_mutex_unlock(&books->estimating);
}

uint32_t books_samples(const struct books *books)
{
    /* Pairs with the release in region.c: who sees the count sees the overheads. */
    return atomic_load_explicit(&books->page->samples[books->slot], memory_order_acquire);
}

uint32_t books_looks(const struct books *books)
{
    return atomic_load(&books->page->looks[books->slot]); /* decided by, as the words */
}

static void add_beside(VCUDA_ATOMIC(uint64_t) * word, int64_t bytes)
{
    if (word == NULL)
        return;
    if (bytes >= 0)
        atomic_fetch_add(word, (uint64_t)bytes);
    else
        lower(word, -(uint64_t)bytes);
}

void books_manage(struct books *books, unsigned device, int64_t bytes, uint32_t devices)
{
    add_beside(slot_beside(books->page->used, device, (uint32_t)books->slot, devices), bytes);
}

void books_import(struct books *books, unsigned device, int64_t bytes, uint32_t devices)
{
    add_beside(slot_beside(books->page->context, device, (uint32_t)books->slot, devices), bytes);
}

void books_export(struct books *books, unsigned device, int64_t bytes)
{
    add_beside(slot_beside(books->page->pending, device, (uint32_t)books->slot, books->devices),
               bytes);
}

void books_deny(struct books *books, unsigned device)
{
    atomic_fetch_add(&books->page->meters[device].memory_denied, 1);
}

void books_lose(struct books *books)
{
    books_degrade(books, VCUDA_DEGRADED_LOCK);
    atomic_store(&books->lost, true);
}

void books_degrade(struct books *books, uint32_t flag)
{
    if (books->slot >= 0)
        atomic_fetch_or(&books->page->slots[books->slot].flags, flag);
}
