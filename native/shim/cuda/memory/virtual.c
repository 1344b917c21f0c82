#include "cuda/memory/virtual.h"

#include "cuda/memory/charge.h"
#include "cuda/memory/overhead.h"
#include "cuda/memory/payer.h"

struct process *virtual_enter(void)
{
    struct process *process = process_limited();
    if (process != NULL)
        process_move_begin(process);
    return process;
}

/* Another process may have imported what we let go of, and hold it still: then it is charged when
 * it is measured. Until then the charge stays here, as the driver's own, and as exported in case we
 * die. Where nothing is ever measured it would stay for good. */
static void let_go(struct process *process, const struct physical *gone)
{
    struct books *books = &process->session.books;
    if (atomic_load(&books->page->overhead[gone->device][books->slot]) == 0) {
        books_export(books, gone->device, -(int64_t)gone->bytes);
        return;
    }
    overhead_presume(process, gone->device, gone->bytes);
    atomic_fetch_add(&process->let_go[gone->device], gone->bytes);
}

/* No memory may move. What cannot be measured now is so at the end of a later call. */
static void measure_importers(struct process *process, unsigned device)
{
    uint64_t bytes = atomic_exchange(&process->let_go[device], 0);
    if (bytes == 0)
        return;
    if (overhead_measure(process, device, true) == 0)
        books_export(&process->session.books, device, -(int64_t)bytes);
    else
        atomic_fetch_add(&process->let_go[device], bytes);
}

CUresult virtual_leave(struct process *process, CUresult result)
{
    if (process == NULL)
        return result;
    process_move_end(process);
    for (unsigned device = 0; device < process->session.config->device_count; device++)
        if (atomic_load_explicit(&process->let_go[device], memory_order_relaxed) != 0)
            measure_importers(process, device);
    return result;
}

void virtual_drop(struct process *process, struct physical *physical)
{
    if (physical == NULL)
        return;
    struct physical *gone = physicals_drop(&process->physicals, physical);
    for (const struct physical *each = gone; each != NULL; each = each->next) {
        if (each->foreign && each->bytes > 0)
            let_go(process, each);
        books_release(&process->session.books, each->device, each->bytes);
        overhead_freed(process, each->device);
        if (each->foreign) /* gone for us, or also for others: a measurement tells */
            overhead_outdated(process, each->device);
    }
    physicals_free(gone);
}

/* What is not named cannot be given back when it is released: then it must not be. */
static CUresult name(struct process *process, CUmemGenericAllocationHandle handle,
                     struct physical *physical)
{
    if (physicals_name(&process->physicals, handle, physical) == 0)
        return CUDA_SUCCESS;
    OWN_CALL(REAL(cuMemRelease)(handle));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult virtual_adopt(struct process *process, CUresult result,
                       const CUmemGenericAllocationHandle *handle, int importer)
{
    if (process == NULL || result != CUDA_SUCCESS)
        return result;
    struct physical *object = physicals_new(importer < 0 ? 0 : (unsigned)importer, 0);
    if (object == NULL) {
        OWN_CALL(REAL(cuMemRelease)(*handle));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (importer >= 0)
        physicals_share(&process->physicals, object);
    result = name(process, *handle, object);
    if (result != CUDA_SUCCESS)
        physicals_free(object);
    return result;
}

static CUresult create(struct charge *charge, CUmemGenericAllocationHandle *handle,
                       const CUmemAllocationProp *properties, unsigned long long flags)
{
    struct process *process = charge->process;
    if (process == NULL)
        return REAL(cuMemCreate)(handle, charge->bytes, properties, flags);
    struct physical *physical = physicals_new(charge->device, charge->bytes);
    if (physical == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuMemCreate)(handle, charge->bytes, properties, flags);
    if (result == CUDA_SUCCESS)
        result = name(process, *handle, physical);
    if (result != CUDA_SUCCESS)
        physicals_free(physical); /* its bytes are given back by charge_end() */
    return result;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags)
{
    struct charge charge;
    if (handle == NULL || properties == NULL)
        return REAL(cuMemCreate)(handle, bytes, properties, flags);
    struct location location = payer_of(&properties->location, properties->type);
    if (location.payer == PAYER_NOBODY)
        return REAL(cuMemCreate)(handle, bytes, properties, flags);
    CUresult result = charge_begin_on(&charge, location.ordinal, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = create(&charge, handle, properties, flags);
    payer_report(charge.process, &location, result);
    return charge_end(&charge, result);
}

/* The handle is forgotten first: the driver may give its value out again at once. */
CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct process *process = virtual_enter();
    struct physical *physical =
        process != NULL ? physicals_unname(&process->physicals, handle) : NULL;
    CUresult result = REAL(cuMemRelease)(handle);
    bool stays = physical != NULL && result != CUDA_SUCCESS;
    if (!stays)
        virtual_drop(process, physical);
    else /* still there, still charged; without memory to say so it stays charged */
        physicals_name(&process->physicals, handle, physical);
    return virtual_leave(process, result);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    struct process *process = virtual_enter();
    struct physical *physical =
        process != NULL ? physicals_hold_at(&process->physicals, (uintptr_t)address) : NULL;
    CUresult result = REAL(cuMemRetainAllocationHandle)(handle, address);
    if (physical != NULL && result == CUDA_SUCCESS)
        result = name(process, *handle, physical);
    if (result != CUDA_SUCCESS)
        virtual_drop(process, physical);
    return virtual_leave(process, result);
}

/* Who made it pays. But who made it may have let go of it, and be this very program: so it is
 * measured what we have now, and if that is too much we have it not. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        int type)
{
    struct overhead overhead;
    CUmemGenericAllocationHandle before = handle == NULL ? 0 : *handle;
    CUresult result = overhead_begin(&overhead, 0);
    if (result != CUDA_SUCCESS)
        return result;
    CUresult answer = REAL(cuMemImportFromShareableHandle)(handle, shareable, type);
    answer = virtual_adopt(overhead.process, answer, handle, (int)overhead.device);
    result = overhead_end(&overhead, answer);
    if (answer == CUDA_SUCCESS && result != CUDA_SUCCESS) {
        cuMemRelease(*handle);
        overhead_undone(&overhead);
        *handle = before;
    }
    return result;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      int type, unsigned long long flags)
{
    struct process *process = virtual_enter();
    struct physical *physical =
        process != NULL ? physicals_hold(&process->physicals, handle) : NULL;
    if (physical != NULL && physicals_share(&process->physicals, physical) != 0)
        books_export(&process->session.books, physical->device, (int64_t)physical->bytes);
    CUresult result = REAL(cuMemExportToShareableHandle)(shareable, handle, type, flags);
    virtual_drop(process, physical);
    return virtual_leave(process, result);
}

/* The mapping that was just made, if it is of memory we know, keeps that memory. */
static CUresult place(struct process *process, CUdeviceptr address, size_t bytes,
                      struct physical *physical)
{
    if (physical == NULL || physicals_place(&process->physicals, address, bytes, physical) == 0)
        return CUDA_SUCCESS;
    OWN_CALL(REAL(cuMemUnmap)(address, bytes));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct process *process = virtual_enter();
    struct physical *physical =
        process != NULL ? physicals_hold(&process->physicals, handle) : NULL;
    CUresult result = REAL(cuMemMap)(address, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS)
        result = place(process, address, bytes, physical);
    if (result != CUDA_SUCCESS)
        virtual_drop(process, physical);
    return virtual_leave(process, result);
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    struct process *process = virtual_enter();
    struct physical *physical;
    if (process == NULL)
        return REAL(cuMemUnmap)(address, bytes);
    struct departure departure = physicals_leave(&process->physicals, address, bytes);
    CUresult result = REAL(cuMemUnmap)(address, bytes);
    if (result != CUDA_SUCCESS)
        physicals_stay(&process->physicals, departure);
    else
        while ((physical = physicals_left(&process->physicals, departure)) != NULL)
            virtual_drop(process, physical);
    return virtual_leave(process, result);
}
