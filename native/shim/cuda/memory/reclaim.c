#include "cuda/memory/reclaim.h"

#include "cuda/graph/memory.h"
#include "cuda/pool/pool.h"

bool reclaim(struct process *process, unsigned device)
{
    CUstreamCaptureMode mode = own_calls_begin();
    bool given = pool_trim_all(process, device);
    given |= graph_reclaim(process, device);
    own_calls_end(mode);
    return given;
}
