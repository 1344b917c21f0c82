#include "cuda/overhead.h"

#include "core/slot.h"

#include <errno.h>

static struct books *books_of(struct process *process)
{
    return &process->session.books;
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

/* Returns whether no other is under way. What is taken is not measured yet. */
static bool leave_call(struct process *process, unsigned device)
{
    struct tally *tally = &process->tallies[device];
    slot_move_end(books_of(process)->page, books_of(process)->slot);
    pthread_mutex_lock(&tally->mutex);
    bool last = --tally->under_way == 0;
    tally->samples = books_samples(books_of(process));
    tally_set(tally, TALLY_ESTIMATED);
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
                   process_memory_limit(process, overhead->device)) == 0)
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
        tally_set(tally, TALLY_ESTIMATED);
    pthread_mutex_unlock(&tally->mutex);
}

/* Until overhead_end(), calls that come in on this thread are the driver's own. */
static CUresult gate(struct overhead *overhead, uint64_t estimate)
{
    *overhead = (struct overhead){.estimate = estimate};
    return process_enter_limited(&overhead->process);
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
    return books_total(books_of(process), device) > process_memory_limit(process, device);
}

static CUresult account(struct overhead *overhead)
{
    struct process *process = overhead->process;
    int error = leave_call(process, overhead->device)
                    ? overhead_measure(process, overhead->device, overhead->often)
                    : -EAGAIN;
    bool settled = error == 0 || error == -ENODATA; /* measured, or never to be */
    if (!settled || !over_limit(process, overhead->device))
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

void overhead_undone(struct overhead *overhead)
{
    if (overhead->process != NULL)
        overhead_shrunk(overhead->process, overhead->device, false);
}
