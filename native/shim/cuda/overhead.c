#include "cuda/overhead.h"

#include "core/slot.h"
#include "cuda/graph_memory.h"
#include "cuda/pool.h"
#include "runtime/clock.h"

#include <errno.h>

#define MILLISECOND UINT64_C(1000000)

static const uint64_t patience_ns = 1000 * MILLISECOND; /* once for an event */
static const uint64_t again_ns = 100 * MILLISECOND;     /* for what was put off */
static const uint64_t silence_ns = 1000 * MILLISECOND;  /* nobody is asked after no answer */
static const uint64_t often_ns = 50 * MILLISECOND;      /* between those that come often */

static struct books *books_of(struct process *process)
{
    return &process->session.books;
}

static const struct vcuda_limit *limit_of(const struct process *process, unsigned device)
{
    return &process->session.config->limits[device];
}

uint64_t overhead_of_context(const struct process *process, int device)
{
    if (device < 0)
        return 0;
    return atomic_load_explicit(&limit_of(process, (unsigned)device)->context_bytes,
                                memory_order_relaxed);
}

static uint64_t memory_limit(const struct process *process, unsigned device)
{
    return atomic_load_explicit(&limit_of(process, device)->memory_bytes, memory_order_relaxed);
}

static void set_state(struct tally *tally, enum tally_state state)
{
    atomic_store_explicit(&tally->state, state, memory_order_relaxed); /* under the mutex */
}

/* Is there anything to wait for, or was the answer that there is no measuring here? */
static bool is_final(int error)
{
    return error == 0 || error == -ENODATA;
}

static void note_silence(struct process *process, int error)
{
    uint64_t now = clock_now();
    /* relaxed: two threads may both ask, or wait too long, once */
    if (error != 0 && error != -EBUSY) {
        atomic_store_explicit(&process->silent_until, now + silence_ns, memory_order_relaxed);
        books_degrade(books_of(process), VCUDA_DEGRADED_MEASURE);
    }
    atomic_store_explicit(&process->measured_at, now, memory_order_relaxed);
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

/* Ask the manager; drop the estimate if nothing came meanwhile that it stands for. */
static int ask(struct process *process, unsigned device, bool insist)
{
    struct tally *tally = &process->tallies[device];
    pthread_mutex_lock(&tally->mutex);
    uint64_t begun = tally->begun;
    pthread_mutex_unlock(&tally->mutex);
    int error = session_measure(&process->session, insist ? patience_ns : again_ns, insist);
    note_silence(process, error);
    pthread_mutex_lock(&tally->mutex);
    bool alone = tally->begun == begun && tally->under_way == 0;
    if (error == 0 && alone)
        books_settle(books_of(process), device);
    set_state(tally, is_final(error) && alone ? TALLY_MEASURED : TALLY_ESTIMATED);
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

/* While the driver takes memory by itself it is moving, too: a measurement would be of before. */
static void enter_call(struct process *process, struct tally *tally)
{
    slot_move_begin(books_of(process)->page, books_of(process)->slot);
    pthread_mutex_lock(&tally->mutex);
    tally->begun++;
    tally->under_way++;
    pthread_mutex_unlock(&tally->mutex);
}

/* Something has changed that is not measured yet. */
void overhead_outdated(struct process *process, unsigned device)
{
    struct tally *tally = &process->tallies[device];
    pthread_mutex_lock(&tally->mutex);
    tally->begun++;
    tally->samples = books_samples(books_of(process));
    set_state(tally, TALLY_ESTIMATED);
    pthread_mutex_unlock(&tally->mutex);
}

void overhead_presume(struct process *process, unsigned device, uint64_t bytes)
{
    struct tally *tally = &process->tallies[device];
    pthread_mutex_lock(&tally->mutex);
    tally->begun++;
    tally->samples = books_samples(books_of(process));
    books_presume(books_of(process), device, bytes);
    set_state(tally, TALLY_ESTIMATED);
    pthread_mutex_unlock(&tally->mutex);
}

/* Returns whether no other is under way. What is taken is not measured yet. */
static bool leave_call(struct process *process, unsigned device)
{
    struct tally *tally = &process->tallies[device];
    slot_move_end(books_of(process)->page, books_of(process)->slot);
    pthread_mutex_lock(&tally->mutex);
    bool last = --tally->under_way == 0;
    tally->samples = books_samples(books_of(process));
    set_state(tally, TALLY_ESTIMATED);
    pthread_mutex_unlock(&tally->mutex);
    return last;
}

static CUresult reserve(struct overhead *overhead, int device)
{
    struct process *process = overhead->process;
    if (device < 0) /* not granted: as if it had no memory */
        return CUDA_ERROR_OUT_OF_MEMORY;
    overhead->device = (unsigned)device;
    enter_call(process, &process->tallies[device]);
    if (overhead->estimate == 0 ||
        books_take(books_of(process), BOOKS_CONTEXT, overhead->device, overhead->estimate,
                   memory_limit(process, overhead->device)) == 0)
        return CUDA_SUCCESS;
    books_deny(books_of(process), overhead->device);
    overhead->estimate = 0;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The estimate goes. If it stood on top of a measurement, what is left of it is one, too. */
static void give_back(struct overhead *overhead)
{
    struct process *process = overhead->process;
    struct tally *tally = &process->tallies[overhead->device];
    books_give_back(books_of(process), BOOKS_CONTEXT, overhead->device, overhead->estimate);
    slot_move_end(books_of(process)->page, books_of(process)->slot);
    pthread_mutex_lock(&tally->mutex);
    tally->under_way--;
    if (overhead->estimate > 0)
        set_state(tally, TALLY_ESTIMATED);
    pthread_mutex_unlock(&tally->mutex);
}

/* Until overhead_end(), calls that come in on this thread are the driver's own. */
static CUresult gate(struct overhead *overhead, uint64_t estimate)
{
    struct process *process;
    *overhead = (struct overhead){.estimate = estimate};
    switch (process_gate(&process)) {
    case GATE_DRIVER:
        return CUDA_SUCCESS;
    case GATE_REFUSED:
        return CUDA_ERROR_SYSTEM_NOT_READY;
    default:
        overhead->process = process;
        process_enter(process);
        return CUDA_SUCCESS;
    }
}

/* There is nothing to hold: the driver answers. */
static CUresult stand_aside(struct overhead *overhead)
{
    overhead->process = NULL;
    process_leave();
    return CUDA_SUCCESS;
}

static CUresult begin_with(struct overhead *overhead, int device)
{
    CUresult result = reserve(overhead, device);
    if (result == CUDA_SUCCESS)
        return result;
    if (device >= 0)
        give_back(overhead);
    process_leave();
    return result;
}

CUresult overhead_begin_on(struct overhead *overhead, CUdevice ordinal, uint64_t estimate)
{
    CUresult result = gate(overhead, estimate);
    if (overhead->process == NULL || result != CUDA_SUCCESS)
        return result;
    int device = process_device(overhead->process, ordinal);
    return device < 0 && !process_ordinal(ordinal) ? stand_aside(overhead)
                                                   : begin_with(overhead, device);
}

/* Without a context nothing is taken yet: the driver may answer as it likes. */
CUresult overhead_begin(struct overhead *overhead, uint64_t estimate)
{
    int device;
    CUresult result = gate(overhead, estimate);
    if (overhead->process == NULL || result != CUDA_SUCCESS)
        return result;
    if (process_current(overhead->process, &device) == CUDA_SUCCESS)
        return begin_with(overhead, device);
    return stand_aside(overhead);
}

static bool over_limit(struct process *process, unsigned device)
{
    return books_total(books_of(process), device) > memory_limit(process, device);
}

static CUresult account(struct overhead *overhead)
{
    struct process *process = overhead->process;
    if (!leave_call(process, overhead->device) || silent(process) ||
        (overhead->often && recently(process)))
        return CUDA_SUCCESS;
    if (measure(process, overhead->device, true) != 0 || !over_limit(process, overhead->device))
        return CUDA_SUCCESS;
    books_deny(books_of(process), overhead->device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult overhead_end(struct overhead *overhead, CUresult result)
{
    if (overhead->process == NULL)
        return result;
    if (result == CUDA_SUCCESS)
        result = account(overhead);
    else
        give_back(overhead);
    process_leave();
    return result;
}

void overhead_shrunk(struct process *process, unsigned device, bool often)
{
    struct tally *tally = &process->tallies[device];
    overhead_outdated(process, device);
    pthread_mutex_lock(&tally->mutex);
    bool none = tally->contexts == 0 && tally->under_way == 0;
    pthread_mutex_unlock(&tally->mutex);
    if (none) /* nothing is left that an estimate could stand for */
        books_settle(books_of(process), device);
    if (!silent(process) && !(often && recently(process)))
        measure(process, device, true);
}

void overhead_contexts(struct process *process, unsigned device, int change)
{
    struct tally *tally = &process->tallies[device];
    pthread_mutex_lock(&tally->mutex);
    tally->contexts += change;
    pthread_mutex_unlock(&tally->mutex);
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

void overhead_undone(struct overhead *overhead)
{
    if (overhead->process != NULL)
        overhead_shrunk(overhead->process, overhead->device, false);
}

/* A context that came by a way that is not hooked: it is there already, so the limit cannot hold
 * it. */
static void notice(struct process *process, unsigned device)
{
    struct books *books = books_of(process);
    if (atomic_load(&books->page->overhead[device][books->slot]) == 0 &&
        atomic_load(&books->page->context[device][books->slot]) == 0)
        books_presume(books, device, overhead_of_context(process, (int)device));
    if (silent(process))
        overhead_outdated(process, device);
    else
        measure(process, device, true);
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
        set_state(tally, TALLY_MEASURED);
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
    measure(process, device, false);
}
