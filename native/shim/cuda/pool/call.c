#include "cuda/memory/overhead.h"
#include "cuda/pool/pool.h"

#include "cuda/launch/capturing.h"
#include "cuda/memory/payer.h"
#include "cuda/memory/reclaim.h"

#include <errno.h>
#include <time.h>

enum {
    TURN_PAUSE_NS = 20 * 1000,
    TURN_PAUSES = 50 * 1000, /* a second, or more: who has the turn is stuck */
};

/* A device's own pool is known by asking each device for its own. */
static int find_standard(struct process *process, CUmemoryPool handle, struct pool *pool)
{
    int count = 0;
    REAL(cuDeviceGetCount)(&count);
    for (CUdevice ordinal = 0; ordinal < count; ordinal++) {
        CUmemoryPool standard;
        if (REAL(cuDeviceGetDefaultMemPool)(&standard, ordinal) != CUDA_SUCCESS ||
            standard != handle)
            continue;
        int error = pools_add(&process->pools, (uintptr_t)handle, process_device(process, ordinal),
                              POOL_STANDARD);
        return error != 0 ? error : pools_find(&process->pools, (uintptr_t)handle, pool);
    }
    return -ENOENT;
}

int pool_know(struct process *process, CUmemoryPool handle, const CUmemLocation *location,
              int allocation, enum pool_origin origin)
{
    struct pool known;
    if (pools_find(&process->pools, (uintptr_t)handle, &known) == 0)
        return 0;
    struct location found = payer_of(location, allocation);
    int device =
        found.payer == PAYER_NOBODY ? POOL_NOT_CHARGED : process_device(process, found.ordinal);
    int error = pools_add(&process->pools, (uintptr_t)handle, device, origin);
    if (error == 0 && found.managed)
        pools_manage(&process->pools, (uintptr_t)handle);
    payer_report(process, &found, CUDA_SUCCESS);
    return error;
}

static bool tells(CUmemoryPool handle, int attribute, int *value)
{
    return REAL(cuMemPoolGetAttribute)(handle, attribute, value) == CUDA_SUCCESS;
}

/* One made in a way we have not seen. Drivers from 13.2 on tell where it is; before, it passes for
 * one on the current device. */
static CUresult find_stranger(struct process *process, CUmemoryPool handle, struct pool *pool)
{
    CUmemLocation location;
    int allocation;
    if (!tells(handle, CU_MEMPOOL_ATTR_LOCATION_TYPE, &location.type) ||
        !tells(handle, CU_MEMPOOL_ATTR_LOCATION_ID, &location.id) ||
        !tells(handle, CU_MEMPOOL_ATTR_ALLOCATION_TYPE, &allocation)) {
        location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        allocation = CU_MEM_ALLOCATION_TYPE_PINNED;
        CUresult result = REAL(cuCtxGetDevice)(&location.id);
        if (result != CUDA_SUCCESS)
            return result;
    }
    bool known = pool_know(process, handle, &location, allocation, POOL_STRANGE) == 0 &&
                 pools_find(&process->pools, (uintptr_t)handle, pool) == 0;
    return known ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult find_pool(struct process *process, CUmemoryPool handle, struct pool *pool)
{
    bool known = pools_find(&process->pools, (uintptr_t)handle, pool) == 0 ||
                 find_standard(process, handle, pool) == 0;
    return known ? CUDA_SUCCESS : find_stranger(process, handle, pool);
}

/* The device of a context that may not be the current one. */
static CUresult device_of(CUcontext context, CUdevice *ordinal)
{
    CUcontext current = NULL;
    CUresult result = REAL(cuCtxGetCurrent)(&current);
    if (result != CUDA_SUCCESS || context == current)
        return result != CUDA_SUCCESS ? result : REAL(cuCtxGetDevice)(ordinal);
    result = REAL(cuCtxPushCurrent_v2)(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuCtxGetDevice)(ordinal);
    REAL(cuCtxPopCurrent_v2)(&current);
    return result;
}

static bool is_default(CUstream stream)
{
    return stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* A green context can be current to one thread only, so that pushing the program's may fail. */
static bool is_green(CUstream stream)
{
    CUgreenCtx context = NULL;
    return REAL(cuStreamGetGreenCtx)(stream, &context) == CUDA_SUCCESS && context != NULL;
}

/* Drivers from 12.8 on say it. */
static CUresult device_of_stream(CUstream stream, CUdevice *ordinal)
{
    CUcontext context;
    if (is_default(stream))
        return REAL(cuCtxGetDevice)(ordinal);
    CUresult result = REAL(cuStreamGetDevice)(stream, ordinal);
    if (result != CUDA_ERROR_NOT_FOUND && result != CUDA_ERROR_NOT_SUPPORTED)
        return result;
    if (is_green(stream))
        return REAL(cuCtxGetDevice)(ordinal);
    result = REAL(cuStreamGetCtx)(stream, &context);
    return result == CUDA_SUCCESS ? device_of(context, ordinal) : result;
}

/* The current pool of the device a stream is on. */
static CUresult current_pool(CUstream stream, CUmemoryPool *pool)
{
    CUdevice ordinal;
    CUresult result = device_of_stream(stream, &ordinal);
    return result == CUDA_SUCCESS ? REAL(cuDeviceGetMemPool)(pool, ordinal) : result;
}

/* One's own turn is not waited for: the driver has called back a tool that allocates, or the thread
 * has left a call by a jump. */
static void take_turn(struct pool_call *call)
{
    const struct timespec pause = {.tv_nsec = TURN_PAUSE_NS};
    struct pools *pools = &call->process->pools;
    bool own = call->pool.turn == pool_thread();
    for (int times = 0; !pools_take_turn(pools, call->pool.handle, pool_thread(),
                                         own || times == TURN_PAUSES, &call->pool);
         times++)
        nanosleep(&pause, NULL);
}

static void end_turn(struct pool_call *call)
{
    pools_end_turn(&call->process->pools, call->pool.handle);
    call->pool.turn = 0;
}

static int reserve(struct pool_call *call)
{
    struct process *process = call->process;
    uint64_t bytes = pool_growth(call->growth.bytes);
    int error = books_reserve(&process->session.books, call->device, bytes,
                              process_memory_limit(process, call->device));
    call->growth.reserved = error == 0 ? bytes : 0;
    return error;
}

/* With the turn: may the driver be asked? anew: nothing is left to wait for, so that what pools
 * keep goes, to make room for growth. */
static bool may_ask(struct pool_call *call, bool anew)
{
    struct process *process = call->process;
    if (reserve(call) == 0)
        return true;
    if (pools_rely(&process->pools, call->pool.handle, call->growth.bytes,
                   pool_stream_key(call->stream)))
        return true;
    return anew && reclaim(process, call->device) && reserve(call) == 0;
}

static CUresult refuse(struct pool_call *call)
{
    books_deny(&call->process->session.books, call->device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Until pool_finish(), if it may be asked. */
static bool begin_moving(struct pool_call *call, bool anew)
{
    process_move_begin(call->process);
    pool_catch_up(call->process, &call->pool);
    bool may = may_ask(call, anew);
    if (!may)
        process_move_end(call->process);
    return may;
}

/* Before a refusal it is measured what may be less than the books say. */
static CUresult begin_charged(struct pool_call *call)
{
    struct process *process = call->process;
    if (call->pool.retired)
        return CUDA_ERROR_INVALID_VALUE;
    if (call->pool.device == POOL_NOT_GRANTED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    call->device = (unsigned)call->pool.device;
    take_turn(call);
    overhead_refresh_for(process, call->device, pool_growth(call->growth.bytes));
    struct retry retry = {0};
    while (!begin_moving(call, retry.waited)) {
        end_turn(call); /* others need not wait, too */
        if (!overhead_reconsider(process, call->device, pool_growth(call->growth.bytes), &retry))
            return refuse(call);
        take_turn(call);
    }
    return CUDA_SUCCESS;
}

/* Which pool, and is there anything to charge? Without, `call->process` is NULL. */
static CUresult begin(struct pool_call *call, CUmemoryPool handle)
{
    CUresult result = CUDA_SUCCESS;
    bool captured = capture_is_on(call->process, call->stream);
    CUstreamCaptureMode mode = own_calls_begin();
    if (!captured && handle == NULL)
        result = current_pool(call->stream, &handle);
    if (!captured && result == CUDA_SUCCESS)
        result = find_pool(call->process, handle, &call->pool);
    own_calls_end(mode);
    if (result != CUDA_SUCCESS)
        return result;
    if (!captured && call->pool.device != POOL_NOT_CHARGED)
        return begin_charged(call);
    call->process = NULL;
    return CUDA_SUCCESS;
}

static CUresult begin_inside(struct pool_call *call, CUmemoryPool pool)
{
    process_enter(call->process); /* begin_charged() enters once more, until pool_finish() */
    CUresult result = begin(call, pool);
    process_leave();
    if (result != CUDA_ERROR_NOT_FOUND && result != CUDA_ERROR_NOT_SUPPORTED)
        return result;
    call->process = NULL;
    call->plain = true;
    return charge_begin(&call->charge, call->growth.bytes, POINTER_PLAIN);
}

CUresult pool_begin(struct pool_call *call, uint64_t bytes, CUmemoryPool pool, CUstream stream)
{
    *call = (struct pool_call){.stream = stream, .growth.bytes = bytes};
    switch (process_gate(&call->process)) {
    case GATE_DRIVER:
        call->process = NULL;
        return CUDA_SUCCESS;
    case GATE_REFUSED:
        return CUDA_ERROR_SYSTEM_NOT_READY;
    default:
        return begin_inside(call, pool);
    }
}

/* The driver gives out an address again only when what was there is gone, however that was. */
static int remember(const struct pool_call *call, CUdeviceptr address)
{
    struct process *process = call->process;
    struct pointers *pointers = &process->holdings[HOLDING_MEMORY];
    struct pointer earlier, pointer = {.address = address,
                                       .bytes = call->growth.bytes,
                                       .device = call->device,
                                       .owner = call->pool.handle};
    if (pointers_replace(pointers, pointer, &earlier) != 0)
        return -ENOMEM;
    if (earlier.address != 0)
        release_stale(process, &earlier);
    return 0;
}

/* The pool grew where there was no room: what it gave goes back, and what it need not keep. */
static CUresult undo(struct pool_call *call, CUdeviceptr address)
{
    OWN_CALL(REAL(cuMemFreeAsync)(address, call->stream));
    reclaim(call->process, call->device);
    return refuse(call);
}

CUresult pool_finish(struct pool_call *call, CUresult result, const CUdeviceptr *address)
{
    struct process *process = call->process;
    if (call->plain)
        return charge_settle(&call->charge, result, result == CUDA_SUCCESS ? *address : 0);
    if (process == NULL)
        return result;
    if (result != CUDA_ERROR_INVALID_VALUE) /* which it is for a handle that is none */
        pool_enter(process, call->pool.handle, &call->growth);
    books_release(&process->session.books, call->device, call->growth.reserved);
    if (result == CUDA_SUCCESS && (call->growth.over || remember(call, *address) != 0))
        result = undo(call, *address);
    if (result == CUDA_SUCCESS)
        pools_given(&process->pools, call->pool.handle, *address, &call->growth);
    else
        pools_end_turn(&process->pools, call->pool.handle);
    if (result == CUDA_ERROR_INVALID_VALUE)
        pools_forget_stranger(&process->pools, call->pool.handle);
    process_move_end(process);
    return result;
}
