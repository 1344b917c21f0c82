/* What the program sees of the memory: the container's limit and what is left of it.
 *
 * The driver answers first and its errors stand; a figure only ever gets smaller. Pointers may be
 * NULL where the driver lets them.
 */
#include "core/memory/slot.h"
#include "cuda/graph/memory.h"
#include "cuda/memory/overhead.h"
#include "cuda/pool/pool.h"

/* The memory of one device as the container has it. */
struct view {
    uint64_t limit;
    uint64_t left;
};

/* What is left can be had: the driver gives whole pages. */
static struct view view_of(struct process *process, int device)
{
    if (device < 0) /* not granted: as if it had no memory */
        return (struct view){0, 0};
    uint64_t limit = process_memory_limit(process, (unsigned)device);
    uint64_t held = slot_add(books_total(&process->session.books, (unsigned)device),
                             overhead_withheld(process, (unsigned)device));
    uint64_t left = limit > held ? limit - held : 0;
    return (struct view){limit, left / SLAB_PAGE * SLAB_PAGE};
}

static CUresult view_current(struct process *process, struct view *view)
{
    int device;
    CUresult result = process_current(process, &device);
    if (result != CUDA_SUCCESS)
        return result;
    pool_settle_all(process);
    graph_memory_settle_all(process);
    overhead_refresh(process, device);
    *view = view_of(process, device);
    return CUDA_SUCCESS;
}

static void lower(size_t *figure, uint64_t bound)
{
    if (figure != NULL && *figure > bound)
        *figure = bound;
}

/* Of the 32-bit API, in which the driver reports at most 4 GiB. */
static void lower_v1(unsigned int *figure, uint64_t bound)
{
    if (figure != NULL && *figure > bound)
        *figure = (unsigned int)bound;
}

CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    struct process *process;
    struct view view;
    enum gate gate = process_gate(&process);
    if (gate == GATE_REFUSED)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    CUresult result = REAL(cuMemGetInfo_v2)(available, total);
    if (gate == GATE_DRIVER || result != CUDA_SUCCESS)
        return result;
    result = view_current(process, &view);
    if (result == CUDA_SUCCESS) {
        lower(available, view.left);
        lower(total, view.limit);
    }
    return result;
}

CUresult cuMemGetInfo(unsigned int *available, unsigned int *total)
{
    struct process *process;
    struct view view;
    enum gate gate = process_gate(&process);
    if (gate == GATE_REFUSED)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    CUresult result = REAL(cuMemGetInfo)(available, total);
    if (gate == GATE_DRIVER || result != CUDA_SUCCESS)
        return result;
    result = view_current(process, &view);
    if (result == CUDA_SUCCESS) {
        lower_v1(available, view.left);
        lower_v1(total, view.limit);
    }
    return result;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    struct process *process;
    enum gate gate = process_gate(&process);
    if (gate == GATE_REFUSED)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    CUresult result = REAL(cuDeviceTotalMem_v2)(bytes, device);
    if (gate == GATE_LIMITED && result == CUDA_SUCCESS)
        lower(bytes, view_of(process, process_device(process, device)).limit);
    return result;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    struct process *process;
    enum gate gate = process_gate(&process);
    if (gate == GATE_REFUSED)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    CUresult result = REAL(cuDeviceTotalMem)(bytes, device);
    if (gate == GATE_LIMITED && result == CUDA_SUCCESS)
        lower_v1(bytes, view_of(process, process_device(process, device)).limit);
    return result;
}
