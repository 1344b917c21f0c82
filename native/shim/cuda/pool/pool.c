#include "cuda/pool/pool.h"

#include "cuda/memory/overhead.h"
#include "cuda/memory/streams.h"

enum {
    ANSWERS = 32, /* of the driver that may come too late, one after another */
};

static CUmemoryPool pool_of(uint64_t handle)
{
    return (CUmemoryPool)(uintptr_t)handle;
}

static uint32_t looks(struct process *process)
{
    return books_looks(&process->session.books);
}

/* What the driver has back may be missing from what was measured since. */
static int enter(struct process *process, const struct pool *before, struct pool_answer answer,
                 struct pool_growth *mine, bool surely)
{
    unsigned device = (unsigned)before->device;
    if (answer.held < before->charged)
        overhead_freed(process, device);
    if (answer.held < before->charged && answer.looks != before->looks)
        overhead_presume(process, device, before->charged - answer.held);
    return pools_enter(&process->pools, &process->session.books, before->handle, answer,
                       process_memory_limit(process, device), mine, surely);
}

/* Pages of managed memory may come when they are touched: what was given out is charged, too. */
static bool held(const struct pool *pool, uint64_t *bytes)
{
    CUmemoryPool handle = pool_of(pool->handle);
    uint64_t used = 0;
    CUstreamCaptureMode mode = own_calls_begin();
    CUresult result =
        REAL(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, bytes);
    if (result == CUDA_SUCCESS && pool->managed)
        REAL(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    own_calls_end(mode);
    *bytes = result == CUDA_SUCCESS && used > *bytes ? used : *bytes;
    return result == CUDA_SUCCESS;
}

/* Ask the driver what a pool holds and enter it. mine: of who has the pool's turn. */
static int settle_once(struct process *process, uint64_t handle, struct pool_growth *mine,
                       bool surely)
{
    struct pool now;
    int error = 0;
    if (pools_use(&process->pools, handle, &now) != 0)
        return 0;
    struct pool_answer answer = {.version = now.version, .looks = looks(process)};
    if (now.device >= 0 && held(&now, &answer.held))
        error = enter(process, &now, answer, mine, surely);
    else
        pools_leave(&process->pools, handle);
    return error;
}

void pool_enter(struct process *process, uint64_t handle, struct pool_growth *mine)
{
    for (int turn = 0; settle_once(process, handle, mine, turn == ANSWERS) != 0; turn++)
        if (turn == ANSWERS)
            return;
}

void pool_catch_up(struct process *process, const struct pool *pool)
{
    if (pool->looks != looks(process))
        pool_enter(process, pool->handle, NULL);
}

static void trim(struct process *process, uint64_t handle)
{
    struct pool pool;
    if (pools_use(&process->pools, handle, &pool) != 0)
        return;
    pool_catch_up(process, &pool);
    struct pool_moment moment = pools_now(&process->pools);
    OWN_CALL(REAL(cuMemPoolTrimTo)(pool_of(handle), 0));
    pool_enter(process, handle, NULL);
    pools_waited(&process->pools, GAP_CLOSED, moment);
    pools_leave(&process->pools, handle);
}

/* One that the program has destroyed ends once nothing of it is in use or on its way back. */
static void settle_or_end(struct process *process, const struct pool *pool)
{
    if (pool->retired)
        trim(process, pool->handle);
    pool_enter(process, pool->handle, NULL);
    CUstreamCaptureMode mode = own_calls_begin();
    if (pools_end(&process->pools, pool->handle))
        REAL(cuMemPoolDestroy)(pool_of(pool->handle));
    own_calls_end(mode);
}

void pool_settle(struct process *process, uint64_t handle)
{
    struct pool pool;
    if (pools_find(&process->pools, handle, &pool) != 0)
        return;
    process_move_begin(process);
    settle_or_end(process, &pool);
    process_move_end(process);
}

void pool_settle_all(struct process *process)
{
    struct pool pool;
    if (!pools_known(&process->pools))
        return;
    process_move_begin(process);
    for (size_t place = 0; pools_at(&process->pools, place, &pool) == 0; place++)
        if (pool.handle != 0 && (pool.charged > 0 || pool.retired))
            settle_or_end(process, &pool);
    process_move_end(process);
}

bool pool_trim_all(struct process *process, unsigned device)
{
    struct pool pool;
    bool given = false;
    if (!pools_known(&process->pools))
        return false;
    process_move_begin(process);
    for (size_t place = 0; pools_at(&process->pools, place, &pool) == 0; place++) {
        if (pool.handle == 0 || pool.device != (int32_t)device || pool.charged == 0)
            continue;
        trim(process, pool.handle);
        settle_or_end(process, &pool);
        given = true;
    }
    process_move_end(process);
    return given;
}

void pool_given_back(struct process *process, const struct pointer *gone, uint64_t stream)
{
    if (stream != GAP_ANY)
        streams_note(process, stream);
    bool retired = pools_returned(&process->pools, gone->owner, gone->address, gone->bytes, stream);
    if (retired || stream == GAP_ANY)
        pool_settle(process, gone->owner);
}

/* A pool takes it for other streams, unless the program forbids that. */
void pool_stream_done(struct process *process, unsigned device, uint64_t stream, uint64_t opened)
{
    struct pool pool;
    for (size_t place = 0; pools_at(&process->pools, place, &pool) == 0; place++) {
        int allowed = 0;
        if (pool.handle == 0 || pool.device != (int32_t)device ||
            pools_use(&process->pools, pool.handle, &pool) != 0)
            continue;
        CUstreamCaptureMode mode = own_calls_begin();
        CUresult result = REAL(cuMemPoolGetAttribute)(
            pool_of(pool.handle), CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &allowed);
        own_calls_end(mode);
        if (result == CUDA_SUCCESS && allowed)
            pools_done(&process->pools, pool.handle, stream, opened);
        pools_leave(&process->pools, pool.handle);
    }
}

/* As the driver does when it destroys a device's current pool. */
static void leave_current(CUmemoryPool handle)
{
    int count = 0;
    CUstreamCaptureMode mode = own_calls_begin();
    REAL(cuDeviceGetCount)(&count);
    for (CUdevice ordinal = 0; ordinal < count; ordinal++) {
        CUmemoryPool current, standard;
        if (REAL(cuDeviceGetMemPool)(&current, ordinal) == CUDA_SUCCESS && current == handle &&
            REAL(cuDeviceGetDefaultMemPool)(&standard, ordinal) == CUDA_SUCCESS)
            REAL(cuDeviceSetMemPool)(ordinal, standard);
    }
    own_calls_end(mode);
}

/* A handle that is destroyed cannot be asked any more: the driver's destruction waits. */
CUresult pool_retire(struct process *process, const struct pool *pool)
{
    if (pool->retired)
        return CUDA_ERROR_INVALID_VALUE;
    process_enter(process);
    leave_current(pool_of(pool->handle));
    pools_retire(&process->pools, pool->handle);
    pool_settle(process, pool->handle);
    process_leave();
    return CUDA_SUCCESS;
}
