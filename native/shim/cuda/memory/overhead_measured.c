/* What the driver took by itself, as far as the manager has measured it. */
#include "cuda/memory/overhead.h"

#include "core/memory/slot.h"
#include "cuda/graph/memory.h"
#include "cuda/memory/streams.h"
#include "cuda/pool/pool.h"
#include "runtime/clock.h"

#include <errno.h>

#define MILLISECOND UINT64_C(1000000)

static const uint64_t patience_ns = 1000 * MILLISECOND; /* once for an event */
static const uint64_t again_ns = 100 * MILLISECOND;     /* for what was put off */
static const uint64_t silence_ns = 1000 * MILLISECOND;  /* nobody is asked after no answer */
static const uint64_t often_ns = 50 * MILLISECOND;      /* between those that come often */
static const uint64_t retried_ns = 100 * MILLISECOND;   /* a request that may have room soon */

static struct books *books_of(struct process *process)
{
    return &process->session.books;
}

uint64_t overhead_of_context(const struct process *process, int device)
{
    return device < 0 ? 0
                      : atomic_load_explicit(&process->session.config->limits[device].context_bytes,
                                             memory_order_relaxed);
}

/* Is there anything to wait for, or was the answer that there is no measuring here? */
static bool is_final(int error)
{
    return error == 0 || error == -ENODATA;
}

/* If memory moved all the while, the next measurement is put off as after no answer. A request that
 * insists measures all the same. */
static void note_answer(struct process *process, int error, bool insist)
{
    uint64_t now = clock_now(), asked = now;
    /* relaxed: two threads may both ask, or wait too long, once */
    if (error == -EAGAIN && !insist) {
        asked += silence_ns - often_ns;
    } else if (error != 0 && error != -EBUSY) {
        atomic_store_explicit(&process->silent_until, now + silence_ns, memory_order_relaxed);
        books_degrade(books_of(process), VCUDA_DEGRADED_MEASURE);
    }
    atomic_store_explicit(&process->measured_at, asked, memory_order_relaxed);
}

static bool silent(const struct process *process)
{
    return clock_now() < atomic_load_explicit(&process->silent_until, memory_order_relaxed);
}

static bool recently(const struct process *process)
{
    return clock_now() <
           atomic_load_explicit(&process->measured_at, memory_order_relaxed) + often_ns;
}

/* Nobody can say what this process's contexts take: each as much as one is known, or presumed, to.
 * Under the tally's mutex. */
static void presume_contexts(struct process *process, unsigned device, const struct tally *tally)
{
    struct books *books = books_of(process);
    uint64_t estimate = atomic_load(&books->page->context[device][books->slot]);
    uint64_t measured = atomic_load(&books->page->overhead[device][books->slot]);
    uint64_t least = tally->contexts > 0
                         ? (uint64_t)tally->contexts * overhead_of_context(process, (int)device)
                         : 0;
    if (estimate < least && measured < least)
        books_presume(books, device, least - estimate);
}

static uint64_t freed_so_far(const struct process *process, unsigned device)
{
    /* relaxed: a hint */
    return atomic_load_explicit(&process->freed[device], memory_order_relaxed);
}

/* Ask the manager; drop the estimate if nothing came meanwhile that it stands for. */
static int ask(struct process *process, unsigned device, bool insist)
{
    struct tally *tally = &process->tallies[device];
    pthread_mutex_lock(&tally->mutex);
    uint64_t begun = tally->begun, freed = freed_so_far(process, device);
    uint64_t peers = books_peers_moved(books_of(process));
    pthread_mutex_unlock(&tally->mutex);
    int error = session_measure(&process->session, insist ? patience_ns : again_ns, insist);
    note_answer(process, error, insist);
    pthread_mutex_lock(&tally->mutex);
    bool alone = tally->begun == begun && tally->under_way == 0;
    if (error == 0 && alone)
        books_settle(books_of(process), device);
    if (is_final(error)) {
        atomic_store_explicit(&tally->freed, freed, memory_order_relaxed);
        atomic_store_explicit(&tally->peers, peers, memory_order_relaxed);
    }
    if (error == -ENODATA)
        presume_contexts(process, device, tally);
    tally_set(tally, is_final(error) && alone ? TALLY_MEASURED : TALLY_ESTIMATED);
    pthread_mutex_unlock(&tally->mutex);
    return error;
}

/* What pools and graphs have given back by themselves is settled first: it would be missing. */
static int measure(struct process *process, unsigned device, bool insist)
{
    process_enter(process);
    pool_settle_all(process);
    graph_memory_settle_all(process);
    int error = ask(process, device, insist);
    process_leave();
    return error;
}

int overhead_measure(struct process *process, unsigned device, bool often)
{
    if (silent(process) || (often && recently(process)))
        return -EAGAIN;
    return measure(process, device, true);
}

/* Something has changed that is not measured yet. */
void overhead_outdated(struct process *process, unsigned device)
{
    struct tally *tally = &process->tallies[device];
    pthread_mutex_lock(&tally->mutex);
    tally->begun++;
    tally->samples = books_samples(books_of(process));
    tally_set(tally, TALLY_ESTIMATED);
    pthread_mutex_unlock(&tally->mutex);
}

void overhead_presume(struct process *process, unsigned device, uint64_t bytes)
{
    struct tally *tally = &process->tallies[device];
    pthread_mutex_lock(&tally->mutex);
    tally->begun++;
    tally->samples = books_samples(books_of(process));
    books_presume(books_of(process), device, bytes);
    tally_set(tally, TALLY_ESTIMATED);
    pthread_mutex_unlock(&tally->mutex);
}

void overhead_shrunk(struct process *process, unsigned device, bool often)
{
    struct tally *tally = &process->tallies[device];
    for (size_t word = 0; word < LAUNCHED_BITS / 64; word++) /* the next may load it again */
        atomic_store_explicit(&process->launched.words[word], 0, memory_order_relaxed);
    overhead_outdated(process, device);
    pthread_mutex_lock(&tally->mutex);
    bool none = tally->contexts == 0 && tally->under_way == 0;
    pthread_mutex_unlock(&tally->mutex);
    if (none) /* nothing is left that an estimate could stand for */
        books_settle(books_of(process), device);
    overhead_measure(process, device, often);
}

CUresult overhead_grown(CUresult result)
{
    int device;
    struct process *process = process_limited();
    if (result == CUDA_SUCCESS && process != NULL &&
        process_current(process, &device) == CUDA_SUCCESS && device >= 0)
        overhead_outdated(process, (unsigned)device);
    return result;
}

void overhead_contexts(struct process *process, unsigned device, int change)
{
    struct tally *tally = &process->tallies[device];
    pthread_mutex_lock(&tally->mutex);
    tally->contexts += change;
    pthread_mutex_unlock(&tally->mutex);
}

static void presume_one(struct process *process, unsigned device)
{
    struct books *books = books_of(process);
    if (atomic_load(&books->page->overhead[device][books->slot]) == 0 &&
        atomic_load(&books->page->context[device][books->slot]) == 0)
        books_presume(books, device, overhead_of_context(process, (int)device));
}

/* A context that came by a way that is not hooked: it is there already, so the limit cannot hold
 * it. */
static void notice(struct process *process, unsigned device)
{
    presume_one(process, device);
    int error = overhead_measure(process, device, false);
    if (error == -EAGAIN)
        overhead_outdated(process, device);
    if (error == -ENODATA) /* only now it is known that one has to be assumed */
        presume_one(process, device);
}

/* A regular measurement that began after the last call has replaced the estimate. One may have been
 * under way when it ended: hence two. */
static bool replaced(struct process *process, struct tally *tally, unsigned device)
{
    enum { SURELY_AFTER = 2 };
    pthread_mutex_lock(&tally->mutex);
    uint32_t since = books_samples(books_of(process)) - tally->samples;
    bool done = since >= SURELY_AFTER && tally->under_way == 0;
    if (done) {
        books_settle(books_of(process), device);
        tally_set(tally, TALLY_MEASURED);
    }
    pthread_mutex_unlock(&tally->mutex);
    return done;
}

void overhead_look(struct process *process, unsigned device, bool exactly)
{
    struct tally *tally = &process->tallies[device];
    if (atomic_load_explicit(&tally->state, memory_order_relaxed) == TALLY_UNSEEN) {
        notice(process, device);
        return;
    }
    if (replaced(process, tally, device) || silent(process) || (!exactly && recently(process)))
        return;
    measure(process, device, exactly);
}

/* margin: more than a driver takes for code between two measurements, as a rule. PyTorch's first
 * kernel took 162 MiB on an H100. A call from inside another one would wait for itself. */
void overhead_refresh_for(struct process *process, unsigned device, uint64_t bytes)
{
    const uint64_t margin = UINT64_C(512) << 20;
    if (atomic_load_explicit(&process->tallies[device].state, memory_order_relaxed) ==
        TALLY_MEASURED) /* a hint, as in overhead_refresh() */
        return;
    uint64_t held = slot_add(books_total(books_of(process), device), slot_add(bytes, margin));
    overhead_look(process, device,
                  held > process_memory_limit(process, device) && !process_nested());
}

/* There is room by now, or may be soon, but others may take it first. So it is tried for
 * a while, long enough to outlast calls under way. Those hold more than they will have in the end:
 * a free until it has returned, a request until it is refused itself. */
static bool try_again(struct retry *retry)
{
    enum { AT_ONCE = 5 };
    const struct timespec pause = {.tv_nsec = 50 * 1000};
    uint64_t now = clock_now();
    if (retry->tries++ == 0)
        retry->until = now + retried_ns;
    if (retry->tries > AT_ONCE && now < retry->until)
        nanosleep(&pause, NULL);
    return retry->tries <= AT_ONCE || now < retry->until;
}

bool overhead_reconsider(struct process *process, unsigned device, uint64_t bytes,
                         struct retry *retry)
{
    enum { MEASURED_MOST = 5 };
    if (!retry->waited) {
        retry->waited = true;
        if (streams_wait(process, device))
            return true;
    }
    uint64_t limit = process_memory_limit(process, device);
    bool moving = bytes <= limit && !process_nested() && /* else it would wait for itself */
                  books_moving(books_of(process));       /* before it is looked */
    enum books_room room = books_room(books_of(process), device, bytes, limit);
    if (room == BOOKS_ROOM || (room == BOOKS_FULL && moving))
        return try_again(retry);
    if (room == BOOKS_FULL || ++retry->measured > MEASURED_MOST)
        return false;
    struct tally *tally = &process->tallies[device];
    bool estimated = atomic_load_explicit(&tally->state, memory_order_relaxed) == TALLY_ESTIMATED;
    bool freed = atomic_load_explicit(&tally->freed, memory_order_relaxed) !=
                     freed_so_far(process, device) ||
                 atomic_load_explicit(&tally->peers, memory_order_relaxed) !=
                     books_peers_moved(books_of(process));
    if (!estimated && !freed)
        return false;
    if (!estimated)
        overhead_outdated(process, device);
    overhead_look(process, device, true);
    return true;
}

uint64_t overhead_withheld(struct process *process, unsigned device)
{
    struct books *books = books_of(process);
    struct tally *tally = &process->tallies[device];
    uint64_t freed = freed_so_far(process, device);
    pthread_mutex_lock(&tally->mutex);
    uint64_t own = slot_driver_bytes(books->page, device, (uint32_t)books->slot);
    bool idle = tally->shown_begun == tally->begun && tally->shown_freed == freed;
    if (!idle || own > tally->shown) {
        tally->shown = own;
        tally->shown_begun = tally->begun;
        tally->shown_freed = freed;
    }
    uint64_t withheld = tally->shown - own;
    pthread_mutex_unlock(&tally->mutex);
    return withheld;
}
