#include "cuda/memory/reclaim.h"

#include "cuda/graph/memory.h"
#include "cuda/pool/pool.h"

/* In the relaxed mode, in which a capture by another thread neither forbids it nor is disturbed. */
bool reclaim(struct process *process, unsigned device)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult exchanged = REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    bool given = pool_trim_all(process, device);
    given |= graph_reclaim(process, device);
    if (exchanged == CUDA_SUCCESS)
        REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    return given;
}
