/* The limits of a context, and the device memory they take.
 *
 * What they are at first is covered by a context's own bytes; beyond that the stack takes its size
 * for each thread that the GPU can hold, the buffer of printf and the heap take theirs. Where the
 * model's contexts take nothing, so do these. It happens at once; but with local_memory the stacks
 * grow at the launch of a kernel that needs more, by the limit or by itself, and stay (what
 * CU_CTX_LMEM_RESIZE_TO_MAX asked for is what drivers do).
 */
#include "cuda/context/limits.h"
#include "core/ledger.h"
#include "cuda/driver.h"

enum { LIMIT_COUNT = 8, STACK_FIRST = 1024 };

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
    static const size_t first[] = {STACK_FIRST, 1048576, 8388608};
    int from = driver->state->machine.driver.local_memory ? 1 : 0; /* without the stacks */
    for (int index = from; gpu->context_bytes > 0 && index < 3; index++) {
        uint64_t wanted = index == limit ? value : context->limits[index];
        bytes += wanted > first[index] ? (wanted - first[index]) * count[index] : 0;
    }
    return bytes;
}

CUresult limits_launch(struct driver *driver, struct context *context, uint64_t local)
{
    if (context == NULL || !driver->state->machine.driver.local_memory)
        return CUDA_SUCCESS;
    unsigned gpu = driver->gpus[context->device];
    const struct sim_gpu *model = &driver->state->machine.gpus[gpu];
    uint64_t each = local > context->limits[0] ? local : context->limits[0];
    if (model->context_bytes == 0 || each <= STACK_FIRST)
        return CUDA_SUCCESS;
    uint64_t bytes = (each - STACK_FIRST) * model->sm_count * model->threads_per_sm;
    pthread_mutex_lock(&driver->mutex);
    uint64_t more = bytes > context->stack_bytes ? bytes - context->stack_bytes : 0;
    uint64_t now = sim_lock(driver->state);
    int error = ledger_take(driver->state, driver->process, gpu, more, now);
    sim_unlock(driver->state);
    if (error == 0)
        context->stack_bytes += more;
    pthread_mutex_unlock(&driver->mutex);
    return error == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
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
