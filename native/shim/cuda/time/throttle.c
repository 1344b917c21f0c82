#include "cuda/time/throttle.h"

#include "cuda/launch/capturing.h"
#include "cuda/memory/overhead.h"
#include "cuda/time/turn.h"

/* With one device granted it can be no other; asking the driver costs more than all the rest. */
static CUresult find_device(struct process *process, int *device)
{
    *device = 0;
    return process->session.config->device_count == 1 ? CUDA_SUCCESS
                                                      : process_current(process, device);
}

static CUresult begin_limited(struct launch *launch, struct process *process)
{
    int device;
    CUresult result = find_device(process, &device);
    if (result != CUDA_SUCCESS || device < 0) /* not granted: it has no memory to work on */
        return result;
    if (!throttle_limited(&process->session.config->limits[device]) ||
        capture_is_on(process, launch->stream)) /* then it runs nothing */
        return CUDA_SUCCESS;
    if (process->session.turns.words == NULL)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    turn_begin(process, (unsigned)device, launch);
    return CUDA_SUCCESS;
}

CUresult throttle_begin(struct launch *launch)
{
    struct process *process;
    enum gate gate = process_gate(&process);
    launch->turned = NULL;
    if (gate == GATE_REFUSED)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    launch->first =
        process_known() != NULL && !throttle_launched(process_known(), launch->function);
    return gate == GATE_DRIVER ? CUDA_SUCCESS : begin_limited(launch, process);
}

/* What it took is there now. Where nothing is limited only the bit is set. */
static void end_first(CUfunction function)
{
    uint64_t bit = throttle_launched_bit(function);
    overhead_grown(CUDA_SUCCESS);
    atomic_fetch_or_explicit(&process_known()->launched.words[bit / 64], UINT64_C(1) << bit % 64,
                             memory_order_relaxed);
}

CUresult throttle_end(struct launch *launch, CUresult result)
{
    if (launch->turned != NULL)
        turn_end(launch, result);
    if (launch->first && result == CUDA_SUCCESS)
        end_first(launch->function);
    return result;
}

void throttle_waited(uint64_t stream)
{
    struct process *process = process_limited();
    int device;
    if (process != NULL && find_device(process, &device) == CUDA_SUCCESS && device >= 0)
        turn_waited(process, (unsigned)device, stream);
}
