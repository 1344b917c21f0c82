/* The limits of a context, and the device memory they take.
 *
 * What they are at first is covered by a context's own bytes; beyond that the stack takes its size
 * for each thread that the GPU can hold, the buffer of printf and the heap take theirs. Where the
 * model's contexts take nothing, so do these. Real drivers resize at the next launch; here it
 * happens at once.
 */
#include "core/ledger.h"
#include "cuda/driver.h"

enum { LIMIT_COUNT = 8 };

API CUresult cuCtxGetLimit(size_t *value, int limit)
{
    struct driver *driver;
    struct context *context;
    CUresult result = driver_context(&driver, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (value == NULL || limit < 0 || limit >= LIMIT_COUNT)
        return CUDA_ERROR_INVALID_VALUE;
    *value = context->limits[limit];
    return CUDA_SUCCESS;
}

static uint64_t heap_bytes(const struct driver *driver, const struct context *context, int limit,
                           size_t value)
{
    const struct sim_gpu *gpu = &driver->state->machine.gpus[driver->gpus[context->device]];
    uint64_t count[] = {(uint64_t)gpu->sm_count * gpu->threads_per_sm, 1, 1}, bytes = 0;
    static const size_t first[] = {1024, 1048576, 8388608};
    for (int index = 0; gpu->context_bytes > 0 && index < 3; index++) {
        uint64_t wanted = index == limit ? value : context->limits[index];
        bytes += wanted > first[index] ? (wanted - first[index]) * count[index] : 0;
    }
    return bytes;
}

static CUresult set_limit(struct driver *driver, struct context *context, int limit, size_t value)
{
    unsigned gpu = driver->gpus[context->device];
    uint64_t bytes = heap_bytes(driver, context, limit, value);
    uint64_t now = sim_lock(driver->state);
    uint64_t more = bytes > context->heap_bytes ? bytes - context->heap_bytes : 0;
    int taken = ledger_take(driver->state, driver->process, gpu, more, now);
    if (taken == 0)
        ledger_give(driver->process, gpu, context->heap_bytes + more - bytes);
    sim_unlock(driver->state);
    if (taken != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->heap_bytes = bytes;
    context->limits[limit] = value;
    return CUDA_SUCCESS;
}

API CUresult cuCtxSetLimit(int limit, size_t value)
{
    struct driver *driver;
    struct context *context;
    CUresult result = driver_context(&driver, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (limit < 0 || limit >= LIMIT_COUNT)
        return CUDA_ERROR_INVALID_VALUE;
    return set_limit(driver, context, limit, value);
}
