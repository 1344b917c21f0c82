#include "cuda/launch/capturing.h"

#include "cuda/time/turn.h"

bool capture_has(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = REAL(cuStreamIsCapturing)(stream, &status);
    if (result == CUDA_ERROR_NOT_FOUND || result == CUDA_ERROR_NOT_SUPPORTED) /* before 10.0 */
        return false;
    return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Counted before, so that a launch by whoever sees the capture sees the count. */
static struct process *begin(void)
{
    struct process *process = process_limited();
    if (process == NULL)
        return NULL;
    process_enter(process);
    atomic_fetch_add(&process->captures, 1);
    turn_credits_end(process);
    return process;
}

static CUresult begun(struct process *process, CUresult result)
{
    if (process == NULL)
        return result;
    if (result != CUDA_SUCCESS)
        atomic_fetch_sub(&process->captures, 1);
    process_leave();
    return result;
}

CUresult cuStreamBeginCapture(CUstream stream)
{
    struct process *process = begin();
    return begun(process, REAL(cuStreamBeginCapture)(stream));
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
    struct process *process = begin();
    return begun(process, REAL(cuStreamBeginCapture_ptsz)(stream));
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    struct process *process = begin();
    return begun(process, REAL(cuStreamBeginCapture_v2)(stream, mode));
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    struct process *process = begin();
    return begun(process, REAL(cuStreamBeginCapture_v2_ptsz)(stream, mode));
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *nodes,
                                     const void *edges, size_t count, CUstreamCaptureMode mode)
{
    struct process *process = begin();
    return begun(process,
                 REAL(cuStreamBeginCaptureToGraph)(stream, graph, nodes, edges, count, mode));
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *nodes,
                                          const void *edges, size_t count, CUstreamCaptureMode mode)
{
    struct process *process = begin();
    return begun(process,
                 REAL(cuStreamBeginCaptureToGraph_ptsz)(stream, graph, nodes, edges, count, mode));
}

CUresult cuStreamBeginRecaptureToGraph(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                                       void *mismatch, void *user)
{
    struct process *process = begin();
    return begun(process, REAL(cuStreamBeginRecaptureToGraph)(stream, mode, graph, mismatch, user));
}

CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, CUstreamCaptureMode mode,
                                            CUgraph graph, void *mismatch, void *user)
{
    struct process *process = begin();
    return begun(process,
                 REAL(cuStreamBeginRecaptureToGraph_ptsz)(stream, mode, graph, mismatch, user));
}

/* A capture that is being ended. process: NULL if there is none that we count. */
struct ending {
    struct process *process;
    CUstream stream;
    bool was_on;
};

static struct ending end_begin(CUstream stream)
{
    struct ending ending = {.process = process_limited(), .stream = stream};
    if (ending.process == NULL)
        return ending;
    process_enter(ending.process);
    ending.was_on = capture_is_on(ending.process, stream);
    return ending;
}

/* Many an error ends it too, and some do not: the driver is asked. */
static CUresult end_end(struct ending ending, CUresult result)
{
    if (ending.process == NULL)
        return result;
    if (ending.was_on && !capture_has(ending.stream))
        atomic_fetch_sub(&ending.process->captures, 1);
    process_leave();
    return result;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    struct ending ending = end_begin(stream);
    return end_end(ending, REAL(cuStreamEndCapture)(stream, graph));
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    struct ending ending = end_begin(process_own_stream(stream));
    return end_end(ending, REAL(cuStreamEndCapture_ptsz)(stream, graph));
}
