/* What the launches of an executable graph cost: learnt as one, whatever is in it.
 *
 * When it is made or changed, what was learnt of it, or of one that had its handle before, is not
 * known any more: the next launch is measured, and those after it wait for that.
 */
#ifndef SHIM_CUDA_GRAPH_COST_H
#define SHIM_CUDA_GRAPH_COST_H

#include "cuda/time/throttle.h"

/* A launch of it, which the limiter takes like that of a kernel with no blocks. */
static inline struct launch graph_cost_launch(CUgraphExec exec, CUstream stream)
{
    return (struct launch){.function = (CUfunction)exec, .stream = stream};
}

/* The driver has changed it, or says why not. Returns its answer. Any thread. */
CUresult graph_cost_changed(CUgraphExec exec, CUresult result);

#endif
