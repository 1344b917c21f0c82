/* Contexts: what each takes of the GPU, and what goes with it.
 *
 * A context takes memory when it comes into being, and what was allocated in it ends with it. The
 * primary one of a device has no call of its own for either: it is there from the first retain to
 * the last release, or a reset.
 */
#include "cuda/memory/charge.h"
#include "cuda/memory/overhead.h"

/* Begin to make a context on a device. */
static CUresult begin(struct overhead *overhead, CUdevice ordinal)
{
    struct process *process = process_limited();
    int device = process != NULL ? process_device(process, ordinal) : -1;
    return overhead_begin_on(overhead, ordinal, overhead_of_context(process, device));
}

static void remember(const struct overhead *overhead, CUcontext context)
{
    struct pointer made = {.address = (uintptr_t)context, .device = overhead->device};
    if (overhead->process == NULL)
        return;
    pointers_add(&overhead->process->holdings[HOLDING_CONTEXT], made);
    overhead_contexts(overhead->process, overhead->device, 1);
}

static void undo(struct overhead *overhead, CUcontext context)
{
    struct pointer made;
    process_enter(overhead->process);
    CUstreamCaptureMode mode = own_calls_begin();
    pointers_take(&overhead->process->holdings[HOLDING_CONTEXT], (uintptr_t)context, &made);
    REAL(cuCtxDestroy_v2)(context);
    own_calls_end(mode);
    process_leave();
    overhead_contexts(overhead->process, overhead->device, -1);
    overhead_undone(overhead);
}

/* The driver has answered, and has made a context if it succeeded. `before`: what was in its place.
 */
static CUresult end(struct overhead *overhead, CUresult answer, CUcontext *context,
                    CUcontext before)
{
    if (answer != CUDA_SUCCESS)
        return overhead_end(overhead, answer);
    remember(overhead, *context);
    CUresult result = overhead_end(overhead, CUDA_SUCCESS);
    if (result != CUDA_SUCCESS) {
        undo(overhead, *context);
        *context = before;
    }
    return result;
}

CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
    struct overhead overhead;
    CUcontext before = context == NULL ? NULL : *context;
    CUresult result = begin(&overhead, device);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuCtxCreate)(context, flags, device);
    return end(&overhead, result, context, before);
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    struct overhead overhead;
    CUcontext before = context == NULL ? NULL : *context;
    CUresult result = begin(&overhead, device);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuCtxCreate_v2)(context, flags, device);
    return end(&overhead, result, context, before);
}

CUresult cuCtxCreate_v3(CUcontext *context, void *affinities, int count, unsigned int flags,
                        CUdevice device)
{
    struct overhead overhead;
    CUcontext before = context == NULL ? NULL : *context;
    CUresult result = begin(&overhead, device);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuCtxCreate_v3)(context, affinities, count, flags, device);
    return end(&overhead, result, context, before);
}

CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned int flags, CUdevice device)
{
    struct overhead overhead;
    CUcontext before = context == NULL ? NULL : *context;
    CUresult result = begin(&overhead, device);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuCtxCreate_v4)(context, parameters, flags, device);
    return end(&overhead, result, context, before);
}

static void account_end(struct process *process, unsigned device)
{
    overhead_contexts(process, device, -1);
    overhead_shrunk(process, device, false);
}

/* Whether it is gone by now: one that was attached to outlives a call that detaches. */
static bool ended(CUcontext context)
{
    unsigned int version;
    return REAL(cuCtxGetApiVersion)(context, &version) != CUDA_SUCCESS;
}

static CUresult destroy(CUresult (*function)(CUcontext), CUcontext context, bool surely)
{
    struct process *process = process_limited();
    struct pointer known;
    if (process == NULL)
        return function(context);
    struct pointers *contexts = &process->holdings[HOLDING_CONTEXT];
    bool ours = pointers_take(contexts, (uintptr_t)context, &known) == 0;
    process_move_begin(process);
    struct ending ending = release_context_begin(process, context);
    unsigned long long number = turn_context_ends(process, context);
    CUresult result = function(context);
    bool gone = result == CUDA_SUCCESS && (surely || ended(context));
    release_context_end(&ending, gone);
    turn_context_ended(process, context, gone ? number : 0);
    if (!gone && ours)
        pointers_add(contexts, known);
    process_move_end(process);
    if (gone && ours)
        account_end(process, known.device);
    return result;
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    return destroy(REAL(cuCtxDestroy_v2), context, true);
}

CUresult cuCtxDestroy(CUcontext context)
{
    return destroy(REAL(cuCtxDestroy), context, true);
}

CUresult cuCtxDetach(CUcontext context)
{
    return destroy(REAL(cuCtxDetach), context, false);
}

static bool primary_active(CUdevice ordinal)
{
    unsigned int flags;
    int active = 0;
    return REAL(cuDevicePrimaryCtxGetState)(ordinal, &flags, &active) == CUDA_SUCCESS &&
           active != 0;
}

static void undo_primary(struct overhead *overhead, CUdevice ordinal)
{
    process_enter(overhead->process);
    OWN_CALL(REAL(cuDevicePrimaryCtxRelease_v2)(ordinal));
    process_leave();
    overhead_contexts(overhead->process, overhead->device, -1);
    overhead_undone(overhead);
}

static CUresult activate(CUcontext *context, CUdevice ordinal)
{
    struct overhead overhead;
    CUcontext before = *context;
    CUresult result = begin(&overhead, ordinal);
    if (result != CUDA_SUCCESS)
        return result;
    CUresult answer = REAL(cuDevicePrimaryCtxRetain)(context, ordinal);
    if (answer == CUDA_SUCCESS && overhead.process != NULL)
        overhead_contexts(overhead.process, overhead.device, 1);
    result = overhead_end(&overhead, answer);
    if (answer == CUDA_SUCCESS && result != CUDA_SUCCESS) {
        undo_primary(&overhead, ordinal);
        *context = before;
    }
    return result;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    struct process *process;
    enum gate gate = process_gate(&process);
    if (gate == GATE_REFUSED)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    if (gate == GATE_DRIVER || context == NULL || primary_active(device))
        return REAL(cuDevicePrimaryCtxRetain)(context, device);
    return activate(context, device);
}

/* The primary context if there is one: only who retains it is told. */
static CUcontext primary_of(CUdevice ordinal)
{
    CUcontext primary = NULL;
    CUstreamCaptureMode mode = own_calls_begin();
    if (primary_active(ordinal) &&
        REAL(cuDevicePrimaryCtxRetain)(&primary, ordinal) == CUDA_SUCCESS)
        REAL(cuDevicePrimaryCtxRelease_v2)(ordinal);
    own_calls_end(mode);
    return primary;
}

/* `surely`: if it succeeds; else only if nobody retains it any longer. */
static CUresult deactivate(CUresult (*function)(CUdevice), CUdevice ordinal, bool surely)
{
    struct process *process = process_limited();
    if (process == NULL)
        return function(ordinal);
    process_move_begin(process);
    int device = process_device(process, ordinal);
    CUcontext primary = primary_of(ordinal);
    struct ending ending = release_context_begin(process, primary);
    unsigned long long number = turn_context_ends(process, primary);
    CUresult result = function(ordinal);
    bool gone = primary != NULL && ((surely && result == CUDA_SUCCESS) || !primary_active(ordinal));
    release_context_end(&ending, gone);
    turn_context_ended(process, primary, gone ? number : 0);
    process_move_end(process);
    if (gone && device >= 0)
        account_end(process, (unsigned)device);
    return result;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return deactivate(REAL(cuDevicePrimaryCtxRelease_v2), device, false);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return deactivate(REAL(cuDevicePrimaryCtxRelease), device, false);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return deactivate(REAL(cuDevicePrimaryCtxReset_v2), device, true);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return deactivate(REAL(cuDevicePrimaryCtxReset), device, true);
}

/* The heap and the buffer of printf are as large as their limit says; the stack takes its own for
 * each thread that the GPU can hold, which only a measurement tells. */
static uint64_t growth(int limit, size_t old, size_t value)
{
    enum { PRINTF_FIFO = 1, MALLOC_HEAP = 2 };
    bool bytes = limit == PRINTF_FIFO || limit == MALLOC_HEAP;
    return bytes && value > old ? value - old : 0;
}

static CUresult set_limit(int limit, size_t old, size_t value)
{
    struct overhead overhead;
    CUresult result = overhead_begin(&overhead, growth(limit, old, value));
    if (result != CUDA_SUCCESS)
        return result;
    CUresult answer = REAL(cuCtxSetLimit)(limit, value);
    result = overhead_end(&overhead, answer);
    if (answer == CUDA_SUCCESS && result != CUDA_SUCCESS) {
        OWN_CALL(REAL(cuCtxSetLimit)(limit, old));
        overhead_undone(&overhead);
    }
    return result;
}

CUresult cuCtxSetLimit(int limit, size_t value)
{
    size_t old;
    struct process *process = process_limited();
    if (process == NULL || REAL(cuCtxGetLimit)(&old, limit) != CUDA_SUCCESS)
        return REAL(cuCtxSetLimit)(limit, value);
    return set_limit(limit, old, value);
}
