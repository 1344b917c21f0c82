/* Kernel launches. Nothing is computed; each takes GPU time on the timeline: a kernel named `spin`
 * the nanoseconds its first parameter says (an unsigned 64-bit number), one named `work` as many
 * iterations of a nanosecond, any other DEFAULT_KERNEL_NS.
 *
 * One whose name begins as NCCL's do, with `ncclDevKernel`, is one of a collective
 * (core/collective.h), with four parameters of 64 bits: its own length, an address that is of no
 * interest here, the number of the group, and how many kernels that has. In a graph, or where its
 * parameters come in a buffer, it is as long as it says and waits for nobody.
 *
 * `jumps` is the kernel of that name in benchmarks/gpu_check/programs/gpu_facts. It gets so much
 * GPU time as its second parameter says, and its launch returns when it has ended.
 */
#include "core/timeline.h"
#include "cuda/capture/capture.h"
#include "cuda/context/limits.h"
#include "cuda/memory/addresses.h"
#include "cuda/module/module.h"
#include "cuda/stream/queue.h"
#include "cuda/stream/tasks.h"
#include <string.h>

static CUresult capture_launch(struct driver *driver, struct stream *stream,
                               const CUlaunchConfig *shape, CUfunction function, void **parameters,
                               void **extra)
{
    struct node node;
    const struct kernel_params params = {
        .v1 = {function, shape->gridDimX, shape->gridDimY, shape->gridDimZ, shape->blockDimX,
               shape->blockDimY, shape->blockDimZ, shape->sharedMemBytes, parameters, extra}};
    CUresult result = node_of_kernel(&params, &node);
    return result == CUDA_SUCCESS ? capture_node(driver, stream, &node) : result;
}

/* The kernel as work. */
static CUresult task_of(const struct driver *driver, int device, const CUlaunchConfig *shape,
                        const struct function *function, void **parameters, void **extra,
                        struct sim_task *task)
{
    uint64_t duration_ns, members;
    CUresult result = launch_duration(function, parameters, extra, &duration_ns);
    if (result != CUDA_SUCCESS)
        return result;
    *task = task_kernel(driver, device, shape, duration_ns);
    if (!function->collective || parameters == NULL)
        return CUDA_SUCCESS;
    memcpy(&task->group, parameters[2], sizeof task->group);
    memcpy(&members, parameters[3], sizeof members);
    if (members == 0 || members > UINT32_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    task->members = (uint32_t)members;
    task->kind = SIM_COLLECTIVE;
    return CUDA_SUCCESS;
}

/* What it writes: when it began and ended, and from when to when it did not have the GPU, each time
 * that this was `least` or longer. */
static void note_jumps(struct driver *driver, int device, uint64_t begin, void **parameters)
{
    CUdeviceptr out = *(const CUdeviceptr *)parameters[0];
    uint64_t least = *(const uint64_t *)parameters[2], most = *(const uint64_t *)parameters[3];
    uint64_t *at = (void *)(uintptr_t)out, last = begin;
    const struct sim_turn *turn;
    pthread_mutex_lock(&driver->mutex);
    if (addresses_access(&driver->memory, out, 16 * (most + 1)) != 0)
        most = 0;
    sim_lock(driver->state);
    for (uint64_t count = 0; count < most; last = turn->end_ns) {
        turn = timeline_turn(driver->state, driver->process, driver->gpus[device], last);
        if (turn == NULL)
            break;
        if (last == begin)
            at[0] = turn->begin_ns > begin ? turn->begin_ns : begin;
        else if (turn->begin_ns - last >= least)
            memcpy(&at[2 * ++count], (uint64_t[]){last, turn->begin_ns}, 16);
        at[1] = turn->end_ns;
    }
    sim_unlock(driver->state);
    pthread_mutex_unlock(&driver->mutex);
}

API CUresult cuLaunchKernelEx(const CUlaunchConfig *shape, CUfunction function, void **parameters,
                              void **extra)
{
    struct driver *driver;
    struct stream *stream;
    struct sim_task task;
    int device;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    result = launch_check(shape, function);
    if (result != CUDA_SUCCESS)
        return result;
    result = queue_stream(driver, shape->hStream, &stream, &device);
    if (result == CUDA_SUCCESS && capture_has(stream))
        return capture_launch(driver, stream, shape, function, parameters, extra);
    if (result == CUDA_SUCCESS)
        result = module_enter(driver, function->module);
    if (result == CUDA_SUCCESS)
        result = limits_launch(driver, context_current(driver), function->needs.local);
    if (result == CUDA_SUCCESS)
        result = task_of(driver, device, shape, function, parameters, extra, &task);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t now = function->jumps ? sim_now() : 0; /* others do not look at the clock */
    struct sim_reach reach = queue_submit(driver, stream, device, task, NULL);
    if (function->jumps && parameters != NULL) {
        queue_wait(driver, device, reach);
        note_jumps(driver, device, now, parameters);
    }
    return CUDA_SUCCESS;
}
ALSO(cuLaunchKernelEx, cuLaunchKernelEx_ptsz);

API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                            CUstream stream, void **parameters, void **extra)
{
    CUlaunchConfig shape = {.gridDimX = grid_x,
                            .gridDimY = grid_y,
                            .gridDimZ = grid_z,
                            .blockDimX = block_x,
                            .blockDimY = block_y,
                            .blockDimZ = block_z,
                            .sharedMemBytes = shared,
                            .hStream = stream};
    return cuLaunchKernelEx(&shape, function, parameters, extra);
}
ALSO(cuLaunchKernel, cuLaunchKernel_ptsz);

API CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                       unsigned grid_z, unsigned block_x, unsigned block_y,
                                       unsigned block_z, unsigned shared, CUstream stream,
                                       void **parameters)
{
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
                          stream, parameters, NULL);
}
ALSO(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz);
