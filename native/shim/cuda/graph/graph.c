/* Executable graphs: what each needs is found out when it is made or changed, for its launches. */
#include "cuda/graph/memory.h"
#include "cuda/memory/overhead.h"
#include "cuda/time/collective.h"

#include <stdlib.h>

/* A graph that is being made executable. exec: NULL if it needs no memory. */
struct making {
    struct process *process; /* NULL: not limited */
    struct graph_need *exec;
    bool collective;
    struct graph_flight flight; /* for the upload that may be part of it */
};

static struct graph_need *exec_of(const struct pointer *pointer)
{
    return (struct graph_need *)(uintptr_t)pointer->owner;
}

static CUresult find_need(struct making *making, CUgraph graph)
{
    struct graph_need need;
    CUstreamCaptureMode mode = own_calls_begin();
    CUresult result = graph_need_of(making->process, graph, &need);
    own_calls_end(mode);
    making->collective = need.collective;
    if (result != CUDA_SUCCESS || !need.any)
        return result == CUDA_ERROR_OUT_OF_MEMORY ? result : CUDA_SUCCESS; /* else the driver's */
    making->exec = calloc(1, sizeof *making->exec);
    if (making->exec == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *making->exec = need;
    return CUDA_SUCCESS;
}

static void give_up(struct making *making)
{
    free(making->exec);
    if (making->process != NULL)
        process_leave();
}

static CUresult make_begin(struct making *making, CUgraphExec *out, CUgraph graph)
{
    *making = (struct making){.process = NULL};
    enum gate gate = process_gate(&making->process);
    if (gate == GATE_REFUSED)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    if (gate == GATE_DRIVER || out == NULL || graph == NULL) {
        making->process = NULL;
        return CUDA_SUCCESS;
    }
    process_enter(making->process);
    CUresult result = find_need(making, graph);
    if (result != CUDA_SUCCESS)
        give_up(making);
    return result;
}

/* A handle that was known is of a graph that went with its context. */
static CUresult enter(struct making *making, CUgraphExec handle)
{
    struct pointers *execs = &making->process->graphs.execs;
    struct pointer earlier,
        pointer = {.address = (uintptr_t)handle, .owner = (uintptr_t)making->exec};
    if (pointers_take(execs, pointer.address, &earlier) == 0)
        free(exec_of(&earlier));
    if (making->exec == NULL || pointers_add(execs, pointer) == 0)
        return CUDA_SUCCESS;
    OWN_CALL(REAL(cuGraphExecDestroy)(handle)); /* whose launches we could not charge must not be */
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Kernels that were never launched are loaded with it. */
static CUresult make_end(struct making *making, CUresult result, CUgraphExec *out)
{
    overhead_grown(result);
    if (making->process == NULL)
        return result;
    result = graph_flight_end(&making->flight, result);
    if (result == CUDA_SUCCESS)
        result = enter(making, *out);
    if (result == CUDA_SUCCESS) {
        collective_set(making->process, *out, making->collective);
        making->exec = NULL; /* the table's now */
    }
    give_up(making);
    return result;
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                            size_t size)
{
    struct making making;
    CUresult result = make_begin(&making, exec, graph);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuGraphInstantiate)(exec, graph, error_node, log, size);
    return make_end(&making, result, exec);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                               size_t size)
{
    struct making making;
    CUresult result = make_begin(&making, exec, graph);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuGraphInstantiate_v2)(exec, graph, error_node, log, size);
    return make_end(&making, result, exec);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    struct making making;
    CUresult result = make_begin(&making, exec, graph);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuGraphInstantiateWithFlags)(exec, graph, flags);
    return make_end(&making, result, exec);
}

/* May upload at once, which takes memory. */
static CUresult make_begin_with(struct making *making, CUgraphExec *out, CUgraph graph,
                                const CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    CUresult result = make_begin(making, out, graph);
    if (result != CUDA_SUCCESS || making->exec == NULL || params == NULL ||
        (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) == 0)
        return result;
    result =
        graph_flight_begin(&making->flight, making->process, making->exec, params->hUploadStream);
    if (result != CUDA_SUCCESS)
        give_up(making);
    return result;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    struct making making;
    CUresult result = make_begin_with(&making, exec, graph, params);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuGraphInstantiateWithParams)(exec, graph, params);
    return make_end(&making, result, exec);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    struct making making;
    CUresult result = make_begin_with(&making, exec, graph, params);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuGraphInstantiateWithParams_ptsz)(exec, graph, params);
    return make_end(&making, result, exec);
}

/* It takes the place of what the executable graph did; that may still be running. */
static CUresult update_end(struct making *making, CUresult result, CUgraphExec handle)
{
    struct pointer known;
    if (making->process == NULL)
        return result;
    struct pointers *execs = &making->process->graphs.execs;
    if (result == CUDA_SUCCESS)
        collective_set(making->process, handle, making->collective);
    if (result == CUDA_SUCCESS && making->exec != NULL) {
        if (pointers_find(execs, (uintptr_t)handle, &known) == 0)
            graph_need_raise(making->exec, exec_of(&known));
        result = enter(making, handle);
        making->exec = result == CUDA_SUCCESS ? NULL : making->exec;
    }
    give_up(making);
    return result;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, int *reason)
{
    struct making making;
    CUresult result = make_begin(&making, &exec, graph);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuGraphExecUpdate)(exec, graph, error_node, reason);
    return update_end(&making, result, exec);
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *result)
{
    struct making making;
    CUresult answer = make_begin(&making, &exec, graph);
    if (answer != CUDA_SUCCESS)
        return answer;
    answer = REAL(cuGraphExecUpdate_v2)(exec, graph, result);
    return update_end(&making, answer, exec);
}

/* Its memory stays with the driver. Forgotten first: the handle may be given out again at once. */
CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    struct process *process = process_limited();
    struct pointer pointer;
    if (process == NULL)
        return REAL(cuGraphExecDestroy)(exec);
    process_enter(process);
    bool ours = pointers_take(&process->graphs.execs, (uintptr_t)exec, &pointer) == 0;
    CUresult result = REAL(cuGraphExecDestroy)(exec);
    if (result == CUDA_SUCCESS)
        collective_set(process, exec, false);
    if (ours && result == CUDA_SUCCESS)
        free(exec_of(&pointer));
    else if (ours)
        pointers_add(&process->graphs.execs, pointer);
    process_leave();
    return result;
}
