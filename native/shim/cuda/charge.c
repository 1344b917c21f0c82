#include "cuda/charge.h"

#include <errno.h>

static uint64_t limit_of(const struct charge *charge)
{
    const struct vcuda_config *config = charge->process->session.config;
    return atomic_load_explicit(&config->limits[charge->device].memory_bytes, memory_order_relaxed);
}

static struct books *books_of(const struct charge *charge)
{
    return &charge->process->session.books;
}

static CUresult reserve(struct charge *charge)
{
    int device;
    CUresult result = process_current(charge->process, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (device < 0) /* not granted: as if it had no memory */
        return CUDA_ERROR_OUT_OF_MEMORY;
    charge->device = (unsigned)device;
    int error = books_reserve(books_of(charge), charge->device, charge->bytes, limit_of(charge));
    return error == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult charge_begin(struct charge *charge, uint64_t bytes)
{
    *charge = (struct charge){.bytes = bytes};
    struct process *process;
    switch (process_gate(&process)) {
    case GATE_DRIVER:
        return CUDA_SUCCESS;
    case GATE_REFUSED:
        return CUDA_ERROR_SYSTEM_NOT_READY;
    default:
        charge->process = process;
    }
    process_depth++; /* until charge_settle(), or here when it is not to come */
    CUresult result = reserve(charge);
    if (result != CUDA_SUCCESS)
        process_depth--;
    return result;
}

int charge_correct(struct charge *charge, uint64_t bytes)
{
    if (charge->process == NULL)
        return 0;
    if (bytes > charge->bytes) {
        uint64_t more = bytes - charge->bytes;
        int error = books_reserve(books_of(charge), charge->device, more, limit_of(charge));
        if (error != 0)
            return error;
    } else {
        books_release(books_of(charge), charge->device, charge->bytes - bytes);
    }
    charge->bytes = bytes;
    return 0;
}

/* The driver gives out an address again only when what was there is gone, with its context say. */
static void forget_earlier(struct charge *charge, CUdeviceptr address)
{
    struct pointer earlier;
    if (pointers_take(&charge->process->pointers, address, &earlier) == 0)
        books_release(books_of(charge), earlier.device, earlier.bytes);
}

/* Remember the address, or undo the allocation: one that we could not give back must not be. */
static CUresult keep(struct charge *charge, CUdeviceptr address)
{
    struct pointer pointer = {address, charge->bytes, charge->device};
    forget_earlier(charge, address);
    if (pointers_add(&charge->process->pointers, pointer) == 0)
        return CUDA_SUCCESS;
    REAL(cuMemFree_v2)(address);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult charge_settle(struct charge *charge, CUresult result, CUdeviceptr address)
{
    if (charge->process == NULL)
        return result;
    if (result == CUDA_SUCCESS && address != 0)
        result = keep(charge, address);
    if (result != CUDA_SUCCESS)
        books_release(books_of(charge), charge->device, charge->bytes);
    process_depth--;
    return result;
}

void release_begin(struct release *release, CUdeviceptr address)
{
    struct process *process = process_known();
    bool attached = process != NULL && session_phase(&process->session) == SESSION_ATTACHED;
    release->process = NULL;
    if (!attached || process_depth > 0)
        return;
    if (pointers_take(&process->pointers, address, &release->pointer) == 0)
        release->process = process;
}

CUresult release_settle(struct release *release, CUresult result)
{
    struct process *process = release->process;
    if (process == NULL)
        return result;
    if (result == CUDA_SUCCESS)
        books_release(&process->session.books, release->pointer.device, release->pointer.bytes);
    else /* still allocated, still charged; without memory to say so it stays charged */
        pointers_add(&process->pointers, release->pointer);
    return result;
}
