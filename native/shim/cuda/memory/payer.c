#include "cuda/memory/payer.h"

struct location payer_of(const CUmemLocation *location, int allocation)
{
    struct location found = location_of(allocation, location->type, location->id);
    CUdevice current;
    if (found.payer == PAYER_CURRENT)
        found.ordinal = REAL(cuCtxGetDevice)(&current) == CUDA_SUCCESS ? current : 0;
    return found;
}

void payer_report(struct process *process, const struct location *location, CUresult result)
{
    if (process != NULL && location->unknown && result == CUDA_SUCCESS)
        process_degrade(process, VCUDA_DEGRADED_ENTRY);
}
