#include "cuda/charge.h"

#include "core/slot.h"
#include "cuda/graph_memory.h"
#include "cuda/overhead.h"
#include "cuda/pool.h"
#include "cuda/reclaim.h"

#include <errno.h>
#include <time.h>

enum { RECLAIMS = 8 };

static struct books *books_of(const struct charge *charge)
{
    return &charge->process->session.books;
}

/* What is kept in reserve goes before anything is refused. Another thread may be about to give back
 * what it reserved for a pool's growth, or what it has trimmed: look again, but not for long. */
static int reserve_more(struct charge *charge, uint64_t bytes)
{
    const struct timespec pause = {.tv_nsec = 50 * 1000};
    struct process *process = charge->process;
    int error = books_reserve(books_of(charge), charge->device, bytes,
                              process_memory_limit(charge->process, charge->device));
    for (int turn = 0; error != 0 && turn < RECLAIMS; turn++) {
        bool given = reclaim(process, charge->device);
        bool busy = pools_known(&process->pools) && pools_busy(&process->pools);
        if (!given && !busy)
            return error;
        error = books_reserve(books_of(charge), charge->device, bytes,
                              process_memory_limit(charge->process, charge->device));
        if (error != 0 && !busy)
            return error;
        if (error != 0)
            nanosleep(&pause, NULL);
    }
    return error;
}

/* Until the charge ends, its bytes are moving: the manager must not measure meanwhile. */
static int try_to_reserve(struct charge *charge)
{
    struct books *books = books_of(charge);
    slot_move_begin(books->page, books->slot);
    int error = reserve_more(charge, charge->bytes);
    if (error != 0)
        slot_move_end(books->page, books->slot);
    return error;
}

/* Before a refusal an estimate is put right that may be too high. */
static CUresult reserve(struct charge *charge, int device)
{
    if (device < 0) /* not granted: as if it had no memory */
        return CUDA_ERROR_OUT_OF_MEMORY;
    charge->device = (unsigned)device;
    overhead_refresh(charge->process, device, false);
    if (try_to_reserve(charge) == 0)
        return CUDA_SUCCESS;
    if (overhead_unsettled(charge->process, charge->device)) {
        overhead_refresh(charge->process, device, true);
        if (try_to_reserve(charge) == 0)
            return CUDA_SUCCESS;
    }
    books_deny(books_of(charge), charge->device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult reserve_current(struct charge *charge)
{
    int device;
    CUcontext context = NULL;
    CUresult result = process_current(charge->process, &device);
    if (result == CUDA_SUCCESS)
        result = REAL(cuCtxGetCurrent)(&context);
    charge->context = (uintptr_t)context;
    return result == CUDA_SUCCESS ? reserve(charge, device) : result;
}

/* Until charge_end(), calls that come in on this thread are the driver's own. */
static CUresult begin(struct charge *charge, uint64_t bytes)
{
    *charge = (struct charge){.bytes = bytes};
    return process_enter_limited(&charge->process);
}

CUresult charge_begin(struct charge *charge, uint64_t bytes)
{
    CUresult result = begin(charge, bytes);
    if (charge->process == NULL || result != CUDA_SUCCESS)
        return result;
    result = reserve_current(charge);
    if (result != CUDA_SUCCESS)
        process_leave();
    return result;
}

/* There is no such device, or no driver yet: it answers. */
static CUresult stand_aside(struct charge *charge)
{
    process_leave();
    charge->process = NULL;
    return CUDA_SUCCESS;
}

CUresult charge_begin_on(struct charge *charge, CUdevice ordinal, uint64_t bytes)
{
    CUresult result = begin(charge, bytes);
    if (charge->process == NULL || result != CUDA_SUCCESS)
        return result;
    int device = process_device(charge->process, ordinal);
    if (device < 0 && !process_ordinal(ordinal))
        return stand_aside(charge);
    result = reserve(charge, device);
    if (result != CUDA_SUCCESS)
        process_leave();
    return result;
}

int charge_correct(struct charge *charge, uint64_t bytes)
{
    if (charge->process == NULL)
        return 0;
    if (bytes > charge->bytes) {
        uint64_t more = bytes - charge->bytes;
        int error = reserve_more(charge, more);
        if (error != 0)
            return error;
    } else {
        books_release(books_of(charge), charge->device, charge->bytes - bytes);
    }
    charge->bytes = bytes;
    return 0;
}

/* The driver gives out an address again only when what was there is gone, however that was. */
int charge_record(struct charge *charge, enum holding kind, uint64_t address)
{
    if (charge->process == NULL)
        return 0;
    struct pointers *pointers = &charge->process->holdings[kind];
    struct pointer earlier, pointer = {.address = address,
                                       .bytes = charge->bytes,
                                       .context = charge->context,
                                       .device = charge->device};
    if (pointers_replace(pointers, pointer, &earlier) != 0)
        return -ENOMEM;
    if (earlier.address != 0)
        release_stale(charge->process, &earlier);
    return 0;
}

CUresult charge_end(struct charge *charge, CUresult result)
{
    if (charge->process == NULL)
        return result;
    if (result != CUDA_SUCCESS)
        books_release(books_of(charge), charge->device, charge->bytes);
    process_move_end(charge->process);
    return result;
}

CUresult charge_settle(struct charge *charge, CUresult result, CUdeviceptr address)
{
    if (result == CUDA_SUCCESS && address != 0 &&
        charge_record(charge, HOLDING_MEMORY, address) != 0) {
        REAL(cuMemFree_v2)(address); /* what we could not give back must not be */
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return charge_end(charge, result);
}

void release_begin(struct release *release, enum holding kind, uint64_t address)
{
    struct process *process = process_limited();
    release->process = NULL;
    release->kind = kind;
    release->stream = GAP_ANY;
    if (process == NULL)
        return;
    process_move_begin(process);
    if (pointers_take(&process->holdings[kind], address, &release->pointer) != 0) {
        process_move_end(process);
        return;
    }
    release->process = process;
    if (release->pointer.owner != 0)
        pools_return(&process->pools, release->pointer.owner, address, release->pointer.bytes);
}

/* Still allocated, still charged; without memory to say so it stays charged. */
static void keep(const struct release *release)
{
    struct process *process = release->process;
    const struct pointer *kept = &release->pointer;
    if (kept->owner != 0)
        pools_kept(&process->pools, kept->owner, kept->address, kept->bytes);
    pointers_add(&process->holdings[release->kind], *kept);
}

CUresult release_settle(struct release *release, CUresult result)
{
    struct process *process = release->process;
    if (process == NULL)
        return result;
    if (result == CUDA_SUCCESS)
        release_gone(process, &release->pointer, release->stream);
    else
        keep(release);
    process_move_end(process);
    return result;
}

/* Of what a pool is charged for, it is the pool that has it back. */
void release_gone(struct process *process, const struct pointer *gone, uint64_t stream)
{
    if (gone->owner != 0)
        pool_given_back(process, gone, stream);
    else
        books_release(&process->session.books, gone->device, gone->bytes);
}

void release_stale(struct process *process, const struct pointer *gone)
{
    bool measured = books_looks(&process->session.books) > 0;
    if (gone->owner == 0 && gone->bytes > 0 && measured)
        overhead_presume(process, gone->device, gone->bytes);
    release_gone(process, gone, GAP_ANY);
}

static void move_all(struct process *process, uint64_t from, uint64_t to)
{
    for (int kind = 0; kind < HOLDINGS; kind++)
        pointers_move(&process->holdings[kind], from, to);
}

struct ending release_context_begin(struct process *process, CUcontext context)
{
    uint64_t apart = 2 * atomic_fetch_add(&process->endings, 1) + 1;
    if (context != NULL) /* what belongs to none does not end with one */
        move_all(process, (uintptr_t)context, apart);
    return (struct ending){process, context, apart};
}

void release_context_end(const struct ending *ending, bool gone)
{
    struct process *process = ending->process;
    struct pointer pointer;
    if (!gone)
        move_all(process, ending->apart, (uintptr_t)ending->context);
    for (int kind = 0; gone && kind < HOLDINGS; kind++)
        while (pointers_take_of(&process->holdings[kind], ending->apart, &pointer) == 0)
            release_gone(process, &pointer, GAP_ANY);
    if (gone) {
        pool_settle_all(process);
        graph_memory_settle_all(process);
    }
}
