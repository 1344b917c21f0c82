#include "cuda/memory/overhead.h"

#include "core/memory/slot.h"

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

/* Until it is given back, or the call ends, memory moves. */
static bool reserve(struct overhead *overhead)
{
    struct process *process = overhead->process;
    uint64_t estimate = overhead->estimate;
    enter_call(process, &process->tallies[overhead->device]);
    if (estimate == 0 || books_take(books_of(process), BOOKS_CONTEXT, overhead->device, estimate,
                                    process_memory_limit(process, overhead->device)) == 0)
        return true;
    overhead->estimate = 0;
    give_back(overhead);
    overhead->estimate = estimate;
    return false;
}

static CUresult refuse(struct overhead *overhead)
{
    books_deny(books_of(overhead->process), overhead->device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Before a refusal it is measured what may be less than the books say. */
static bool reserve_more(struct overhead *overhead)
{
    struct retry retry = {0};
    while (!reserve(overhead))
        if (!overhead_reconsider(overhead->process, overhead->device, overhead->estimate, &retry))
            return false;
    return true;
}

static CUresult begin_with(struct overhead *overhead, int device, uint64_t least)
{
    if (device < 0) { /* not granted: as if it had no memory */
        process_leave();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    overhead->device = (unsigned)device;
    if (reserve_more(overhead))
        return CUDA_SUCCESS;
    overhead->unpaid = least < overhead->estimate;
    overhead->estimate = least;
    if (overhead->unpaid && reserve(overhead))
        return CUDA_SUCCESS;
    CUresult result = refuse(overhead);
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
                                                   : begin_with(overhead, device, estimate);
}

/* Without a context nothing is taken yet: the driver may answer as it likes. */
static CUresult begin_current(struct overhead *overhead, uint64_t estimate, uint64_t least)
{
    int device;
    CUresult result = gate(overhead, estimate);
    if (overhead->process == NULL || result != CUDA_SUCCESS)
        return result;
    if (process_current(overhead->process, &device) == CUDA_SUCCESS)
        return begin_with(overhead, device, least);
    return stand_aside(overhead);
}

CUresult overhead_begin(struct overhead *overhead, uint64_t estimate)
{
    return begin_current(overhead, estimate, estimate);
}

CUresult overhead_begin_loading(struct overhead *overhead, uint64_t estimate, uint64_t least)
{
    return begin_current(overhead, estimate, least);
}

static bool over_limit(struct process *process, unsigned device)
{
    return books_total(books_of(process), device) > process_memory_limit(process, device);
}

static CUresult account(struct overhead *overhead)
{
    struct process *process = overhead->process;
    bool often = overhead->often && !overhead->unpaid;
    int error = leave_call(process, overhead->device)
                    ? overhead_measure(process, overhead->device, often)
                    : -EAGAIN;
    if (overhead->unpaid &&
        error != 0) /* nothing stands for it, and nobody has seen that it fits */
        return refuse(overhead);
    bool settled = error == 0 || error == -ENODATA; /* measured, or never to be */
    return settled && over_limit(process, overhead->device) ? refuse(overhead) : CUDA_SUCCESS;
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
