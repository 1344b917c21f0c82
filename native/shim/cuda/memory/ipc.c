/* Memory of another process, opened here by a handle: who made it is charged for it.
 *
 * But the driver's figure of this process may contain it, too. So the books say how much of it is
 * open, for the manager to tell it from what the driver takes by itself.
 */
#include "cuda/memory/charge.h"

/* The call is under way: until it has ended the manager must not measure. */
static struct process *begin(void)
{
    struct process *process = process_limited();
    if (process != NULL)
        process_move_begin(process);
    return process;
}

static CUresult end(struct process *process, CUresult result)
{
    if (process != NULL)
        process_move_end(process);
    return result;
}

static void count(struct process *process, const struct pointer *opened, bool more)
{
    int64_t bytes = (int64_t)opened->bytes;
    books_import(&process->session.books, opened->device, more ? bytes : -bytes,
                 process->session.config->device_count);
}

/* Opened again, it has the same address, and is to be closed as often. Without memory to say so it
 * is not counted: then it passes for the driver's own. */
static void remember(struct process *process, CUdeviceptr address)
{
    struct pointers *imports = &process->holdings[HOLDING_IMPORT];
    struct pointer opened = {.address = address, .kind = POINTER_IMPORTED, .owner = 1}, earlier;
    CUdeviceptr start;
    CUcontext context = NULL;
    size_t bytes = 0;
    int device = -1;
    CUstreamCaptureMode mode = own_calls_begin();
    CUresult result = REAL(cuMemGetAddressRange_v2)(&start, &bytes, address);
    own_calls_end(mode);
    if (result != CUDA_SUCCESS || process_current(process, &device) != CUDA_SUCCESS || device < 0)
        return;
    REAL(cuCtxGetCurrent)(&context);
    opened.bytes = slab_whole(bytes);
    opened.device = (unsigned)device;
    opened.context = (uintptr_t)context;
    if (pointers_take(imports, address, &earlier) == 0)
        opened.owner += earlier.owner;
    if (pointers_add(imports, opened) == 0 && opened.owner == 1)
        count(process, &opened, true);
}

static CUresult opened(struct process *process, CUresult result, const CUdeviceptr *address)
{
    if (process != NULL && result == CUDA_SUCCESS)
        remember(process, *address);
    return end(process, result);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
    struct process *process = begin();
    return opened(process, REAL(cuIpcOpenMemHandle)(address, handle, flags), address);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
    struct process *process = begin();
    return opened(process, REAL(cuIpcOpenMemHandle_v2)(address, handle, flags), address);
}

/* Forgotten first: the driver may give the address out again at once. */
CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    struct process *process = begin();
    struct pointer known = {0};
    struct pointers *imports = process != NULL ? &process->holdings[HOLDING_IMPORT] : NULL;
    bool ours = imports != NULL && pointers_take(imports, address, &known) == 0;
    CUresult result = REAL(cuIpcCloseMemHandle)(address);
    if (ours && result == CUDA_SUCCESS && known.owner == 1) {
        count(process, &known, false);
    } else if (ours) {
        known.owner -= result == CUDA_SUCCESS;
        pointers_add(imports, known);
    }
    return end(process, result);
}
