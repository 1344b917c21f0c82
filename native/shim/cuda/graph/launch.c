/* Launches and uploads of executable graphs, and giving back what they left. */
#include "cuda/graph/memory.h"
#include "cuda/launch/capturing.h"
#include "cuda/time/throttle.h"

/* Reserve what it needs. Where the stream is captured nothing runs. */
static CUresult begin_memory(struct graph_flight *flight, struct process *process, CUgraphExec exec,
                             CUstream stream)
{
    struct pointer known;
    if (pointers_find(&process->graphs.execs, (uintptr_t)exec, &known) != 0 ||
        capture_is_on(process, stream))
        return CUDA_SUCCESS;
    struct graph_need *needing = (struct graph_need *)(uintptr_t)known.owner;
    return graph_flight_begin(flight, process, needing, stream);
}

static CUresult begin_upload(struct graph_flight *flight, CUgraphExec exec, CUstream stream)
{
    struct process *process;
    flight->process = NULL;
    switch (process_gate(&process)) {
    case GATE_REFUSED:
        return CUDA_ERROR_SYSTEM_NOT_READY;
    case GATE_DRIVER:
        return CUDA_SUCCESS;
    default:
        return begin_memory(flight, process, exec, stream);
    }
}

/* One launch, and what it takes: GPU time first, for that may have to be waited for, and memory
 * should not be. */
struct start {
    struct launch launch;
    struct graph_flight flight;
};

static CUresult begin_granted(struct start *start, struct process *process, CUgraphExec exec,
                              CUstream stream)
{
    CUresult result = exec == NULL ? CUDA_SUCCESS : throttle_begin(&start->launch);
    if (result != CUDA_SUCCESS)
        return result;
    result = begin_memory(&start->flight, process, exec, stream);
    return result == CUDA_SUCCESS ? result : throttle_end(&start->launch, result);
}

static CUresult begin(struct start *start, CUgraphExec exec, CUstream stream)
{
    struct process *process;
    *start = (struct start){.launch = {.function = (CUfunction)exec, .stream = stream}};
    switch (process_gate(&process)) {
    case GATE_REFUSED:
        return CUDA_ERROR_SYSTEM_NOT_READY;
    case GATE_DRIVER:
        return CUDA_SUCCESS;
    default:
        return begin_granted(start, process, exec, stream);
    }
}

static CUresult end(struct start *start, CUresult result)
{
    return throttle_end(&start->launch, graph_flight_end(&start->flight, result));
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    struct start start;
    CUresult result = begin(&start, exec, stream);
    if (result != CUDA_SUCCESS)
        return result;
    return end(&start, REAL(cuGraphLaunch)(exec, stream));
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    struct start start;
    CUresult result = begin(&start, exec, process_own_stream(stream));
    if (result != CUDA_SUCCESS)
        return result;
    return end(&start, REAL(cuGraphLaunch_ptsz)(exec, stream));
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    struct graph_flight flight;
    CUresult result = begin_upload(&flight, exec, stream);
    if (result != CUDA_SUCCESS)
        return result;
    return graph_flight_end(&flight, REAL(cuGraphUpload)(exec, stream));
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    struct graph_flight flight;
    CUresult result = begin_upload(&flight, exec, process_own_stream(stream));
    if (result != CUDA_SUCCESS)
        return result;
    return graph_flight_end(&flight, REAL(cuGraphUpload_ptsz)(exec, stream));
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    struct process *process;
    switch (process_gate(&process)) {
    case GATE_REFUSED:
        return CUDA_ERROR_SYSTEM_NOT_READY;
    case GATE_DRIVER:
        return REAL(cuDeviceGraphMemTrim)(device);
    default:
        return graph_trim(process, device);
    }
}
