#include "cuda/graph/cost.h"

CUresult graph_cost_changed(CUgraphExec exec, CUresult result)
{
    struct process *process = process_known();
    if (result != CUDA_SUCCESS || process == NULL)
        return result;
    uint64_t key = cost_key((uintptr_t)exec, 0, 0);
    flights_outdate(&process->timing.flights,
                    key); /* first: what lands meanwhile is forgotten after */
    cost_forget(&process->costs, key);
    return result;
}
