/* Launches and uploads of executable graphs, and giving back what they left. */
#include "cuda/graph_memory.h"

/* Is the stream captured, so that nothing runs? An error says so too. */
static bool capturing(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = REAL(cuStreamIsCapturing)(stream, &status);
    return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUresult begin(struct graph_flight *flight, CUgraphExec exec, CUstream stream)
{
    struct process *process;
    struct pointer known;
    flight->process = NULL;
    enum gate gate = process_gate(&process);
    if (gate == GATE_REFUSED)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    if (gate == GATE_DRIVER ||
        pointers_find(&process->graphs.execs, (uintptr_t)exec, &known) != 0 || capturing(stream))
        return CUDA_SUCCESS;
    struct graph_exec *needing = (struct graph_exec *)(uintptr_t)known.owner;
    return graph_flight_begin(flight, process, needing, stream);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    struct graph_flight flight;
    CUresult result = begin(&flight, exec, stream);
    if (result != CUDA_SUCCESS)
        return result;
    return graph_flight_end(&flight, REAL(cuGraphLaunch)(exec, stream));
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    struct graph_flight flight;
    CUresult result = begin(&flight, exec, process_own_stream(stream));
    if (result != CUDA_SUCCESS)
        return result;
    return graph_flight_end(&flight, REAL(cuGraphLaunch_ptsz)(exec, stream));
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    struct graph_flight flight;
    CUresult result = begin(&flight, exec, stream);
    if (result != CUDA_SUCCESS)
        return result;
    return graph_flight_end(&flight, REAL(cuGraphUpload)(exec, stream));
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    struct graph_flight flight;
    CUresult result = begin(&flight, exec, process_own_stream(stream));
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
