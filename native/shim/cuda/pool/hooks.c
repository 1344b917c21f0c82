/* Memory pools as the table names them: allocated from, made, trimmed, set, destroyed, and the
 * waiting at which the driver lets go of what they keep. */
#include "cuda/pool/pool.h"
#include "cuda/time/throttle.h"

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    struct pool_call call;
    CUresult result = pool_begin(&call, bytes, NULL, stream);
    if (result != CUDA_SUCCESS)
        return result;
    return pool_finish(&call, REAL(cuMemAllocAsync)(address, bytes, stream), address);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    struct pool_call call;
    CUresult result = pool_begin(&call, bytes, NULL, process_own_stream(stream));
    if (result != CUDA_SUCCESS)
        return result;
    return pool_finish(&call, REAL(cuMemAllocAsync_ptsz)(address, bytes, stream), address);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                 CUstream stream)
{
    struct pool_call call;
    CUresult result = pool_begin(&call, bytes, pool, stream);
    if (result != CUDA_SUCCESS)
        return result;
    return pool_finish(&call, REAL(cuMemAllocFromPoolAsync)(address, bytes, pool, stream), address);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                      CUstream stream)
{
    struct pool_call call;
    CUresult result = pool_begin(&call, bytes, pool, process_own_stream(stream));
    if (result != CUDA_SUCCESS)
        return result;
    return pool_finish(&call, REAL(cuMemAllocFromPoolAsync_ptsz)(address, bytes, pool, stream),
                       address);
}

/* Without memory to remember a new pool, which is the error, there is none. */
static CUresult made(const CUmemoryPool *pool, int error)
{
    if (error == 0)
        return CUDA_SUCCESS;
    OWN_CALL(REAL(cuMemPoolDestroy)(*pool));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult make(struct process *process, CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    process_enter(process);
    CUresult result = REAL(cuMemPoolCreate)(pool, properties);
    if (result == CUDA_SUCCESS)
        result = made(pool, pool_know(process, *pool, &properties->location, properties->allocType,
                                      POOL_MADE));
    process_leave();
    return result;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    struct process *process;
    enum gate gate = process_gate(&process);
    if (gate == GATE_REFUSED)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    return gate == GATE_DRIVER ? REAL(cuMemPoolCreate)(pool, properties)
                               : make(process, pool, properties);
}

/* Whoever exported it is charged for it. */
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle, int type,
                                            unsigned long long flags)
{
    struct process *process;
    enum gate gate = process_gate(&process);
    if (gate == GATE_REFUSED)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    if (gate == GATE_DRIVER)
        return REAL(cuMemPoolImportFromShareableHandle)(pool, handle, type, flags);
    process_enter(process);
    CUresult result = REAL(cuMemPoolImportFromShareableHandle)(pool, handle, type, flags);
    if (result == CUDA_SUCCESS)
        result =
            made(pool, pools_add(&process->pools, (uintptr_t)*pool, POOL_NOT_CHARGED, POOL_MADE));
    process_leave();
    return result;
}

/* Where a pool is that the program may not have made is known by where it was asked for. Without
 * memory to remember that, it is found out when the pool is used. */
static CUresult got(CUresult result, const CUmemoryPool *pool, const CUmemLocation *location,
                    int allocation)
{
    struct process *process = process_limited();
    if (result == CUDA_SUCCESS && process != NULL)
        pool_know(process, *pool, location, allocation, POOL_STANDARD);
    return result;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, int allocation)
{
    return got(REAL(cuMemGetDefaultMemPool)(pool, location, allocation), pool, location,
               allocation);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, int allocation)
{
    return got(REAL(cuMemGetMemPool)(pool, location, allocation), pool, location, allocation);
}

CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
    struct pool pool;
    struct process *process = process_limited();
    bool known = process != NULL && pools_find(&process->pools, (uintptr_t)handle, &pool) == 0;
    if (known && pool.origin == POOL_MADE && pool.device != POOL_NOT_CHARGED)
        return pool_retire(process, &pool);
    if (known && pool.origin == POOL_MADE)
        pools_remove(&process->pools, (uintptr_t)handle);
    return REAL(cuMemPoolDestroy)(handle);
}

/* A pool that was destroyed is unknown to the driver, as far as the program can tell. */
static bool retired(const struct process *process, CUmemoryPool handle)
{
    struct pool pool;
    return process != NULL &&
           pools_find((struct pools *)&process->pools, (uintptr_t)handle, &pool) == 0 &&
           pool.retired;
}

/* Around a wait: what was freed before it is for every stream after it, and may be back with the
 * driver. Others may measure meanwhile, for it may be long; what they miss is made good when pools
 * are settled. For a process without pools it is one load. */
struct wait {
    struct process *process; /* NULL: nothing to do */
    struct pool_moment moment;
};

static struct wait wait_begin(void)
{
    struct process *process = process_known();
    if (process == NULL || !pools_known(&process->pools))
        return (struct wait){.process = NULL};
    pools_seen(&process->pools, pool_thread());
    return (struct wait){.process = process, .moment = pools_now(&process->pools)};
}

static CUresult wait_end(struct wait wait, CUresult result, uint64_t stream)
{
    if (wait.process == NULL)
        return result;
    pool_settle_all(wait.process);
    pools_waited(&wait.process->pools, result == CUDA_SUCCESS ? stream : GAP_CLOSED, wait.moment);
    return result;
}

/* Around what gives memory of a pool back and is short: it is moving. */
static struct wait trim_begin(CUmemoryPool pool)
{
    struct wait wait = wait_begin();
    struct pool known;
    if (wait.process == NULL)
        return wait;
    process_move_begin(wait.process);
    if (pools_find(&wait.process->pools, (uintptr_t)pool, &known) == 0)
        pool_catch_up(wait.process, &known);
    return wait;
}

static CUresult trim_end(struct wait wait, CUresult result)
{
    struct process *process = wait.process;
    result = wait_end(wait, result, GAP_CLOSED);
    if (process != NULL)
        process_move_end(process);
    return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    if (retired(process_limited(), pool))
        return CUDA_ERROR_INVALID_VALUE;
    struct wait wait = trim_begin(pool);
    return trim_end(wait, REAL(cuMemPoolTrimTo)(pool, keep));
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    if (retired(process_limited(), pool))
        return CUDA_ERROR_INVALID_VALUE;
    struct wait wait = trim_begin(pool);
    CUresult result = REAL(cuMemPoolSetAttribute)(pool, attribute, value);
    if (wait.process != NULL && attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC &&
        result == CUDA_SUCCESS && *(const int *)value == 0)
        pools_forget_room(&wait.process->pools, (uintptr_t)pool);
    return trim_end(wait, result);
}

/* And what was launched before it has ended. */
static CUresult pause_end(struct wait wait, CUresult result, uint64_t stream)
{
    result = wait_end(wait, result, stream);
    throttle_waited(result == CUDA_SUCCESS ? stream : GAP_CLOSED);
    return result;
}

CUresult cuCtxSynchronize(void)
{
    struct wait wait = wait_begin();
    return pause_end(wait, REAL(cuCtxSynchronize)(), GAP_ANY);
}

/* Of another context than the current one only what its pools gave back is seen, as behind an
 * event. */
CUresult cuCtxSynchronize_v2(CUcontext context)
{
    CUcontext current = NULL;
    struct wait wait = wait_begin();
    CUresult result = REAL(cuCtxSynchronize_v2)(context);
    if (wait.process != NULL && context != NULL)
        REAL(cuCtxGetCurrent)(&current);
    return pause_end(wait, result, context == current ? GAP_ANY : GAP_CLOSED);
}

CUresult cuStreamSynchronize(CUstream stream)
{
    struct wait wait = wait_begin();
    return pause_end(wait, REAL(cuStreamSynchronize)(stream), pool_stream_key(stream));
}

CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
    struct wait wait = wait_begin();
    return pause_end(wait, REAL(cuStreamSynchronize_ptsz)(stream),
                     pool_stream_key(process_own_stream(stream)));
}

/* Nobody knows what of which stream lies before an event: only what pools gave back is seen. */
CUresult cuEventSynchronize(CUevent event)
{
    struct wait wait = wait_begin();
    return pause_end(wait, REAL(cuEventSynchronize)(event), GAP_CLOSED);
}
