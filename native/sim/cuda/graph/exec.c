/* Executable graphs: a copy of a graph in the order it will run. */
#include "cuda/graph/conditional.h"
#include "cuda/module/module.h"
#include <stdlib.h>

static void dispose(struct driver *driver, struct exec *exec)
{
    if (exec->graph != NULL)
        graph_release(driver, exec->graph);
    node_set_clear(&exec->order);
    free(exec);
}

/* Code of its own kernels that was not needed before is loaded now, at the latest. */
static CUresult load_code(struct driver *driver, const struct node_set *order)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < order->count && result == CUDA_SUCCESS; i++) {
        const struct kernel_params *params = &order->items[i]->kernel.params;
        CUfunction function = params->v1.function != NULL ? params->v1.function : params->kernel;
        if (order->items[i]->type == NODE_KERNEL)
            result = module_enter(driver, function->module);
    }
    return result;
}

static CUresult fill_in(struct driver *driver, struct graph *graph, uint64_t flags,
                        struct exec *exec)
{
    exec->kind = EXEC;
    exec->flags = flags;
    exec->graph = graph_copy(driver, graph);
    if (exec->graph == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = graph_order(exec->graph, &exec->order);
    return result == CUDA_SUCCESS ? load_code(driver, &exec->order) : result;
}

static void enter(struct driver *driver, struct graph *graph, struct exec *exec)
{
    exec->source = graph;
    graph->references++;
    graph->execs++;
    pthread_mutex_lock(&driver->mutex);
    exec->next = driver->execs;
    driver->execs = exec;
    pthread_mutex_unlock(&driver->mutex);
}

/* Of a graph that allocates or frees there is one executable copy at a time, as documented. */
API CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || !is_graph(graph) || flags > EXEC_FLAGS ||
        (graph->execs > 0 && graph_has_memory(graph)) || !conditional_bodies_valid(graph))
        return CUDA_ERROR_INVALID_VALUE;
    struct exec *exec = calloc(1, sizeof *exec);
    if (exec == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = fill_in(driver, graph, flags, exec);
    if (result != CUDA_SUCCESS) {
        dispose(driver, exec);
        return result;
    }
    enter(driver, graph, exec);
    *out = exec;
    return CUDA_SUCCESS;
}

API CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *error_node,
                                   char *log, size_t size)
{
    CUresult result = cuGraphInstantiateWithFlags(out, graph, 0);
    if (error_node != NULL)
        *error_node = NULL;
    if (log != NULL && size > 0)
        *log = '\0';
    return result;
}
ALSO(cuGraphInstantiate_v2, cuGraphInstantiate);

API CUresult cuGraphUpload(CUgraphExec exec, CUstream handle);

API CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_exec(exec))
        return CUDA_ERROR_INVALID_VALUE;
    exec->kind = NO_OBJECT;
    graph_memory_unmap(driver, exec);
    exec->source->execs--;
    graph_release(driver, exec->source);
    dispose(driver, exec);
    return CUDA_SUCCESS;
}

API CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph,
                                          struct instantiate_params *params)
{
    enum { SUCCESS, ERROR };
    if (params == NULL || out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphExec exec;
    CUresult result = cuGraphInstantiateWithFlags(&exec, graph, params->flags);
    if (result == CUDA_SUCCESS && (params->flags & EXEC_UPLOAD) != 0) {
        result = cuGraphUpload(exec, params->upload_stream);
        if (result != CUDA_SUCCESS)
            cuGraphExecDestroy(exec);
    }
    params->error_node = NULL;
    params->result = result == CUDA_SUCCESS ? SUCCESS : ERROR;
    if (result == CUDA_SUCCESS)
        *out = exec;
    return result;
}
ALSO(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz);

API CUresult cuGraphExecGetFlags(CUgraphExec exec, uint64_t *flags)
{
    if (!is_exec(exec) || flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

/* Why the graph cannot take the place of the executable one, or 0. Memory nodes cannot change. */
static int difference(const struct graph *now, const struct graph *then, CUgraphNode *at)
{
    enum { TOPOLOGY = 2, TYPE = 3, UNSUPPORTED = 6 };
    *at = NULL;
    if (now->nodes.count != then->nodes.count)
        return TOPOLOGY;
    if (graph_has_memory(now) || graph_has_memory(then))
        return now->nodes.count > 0 && graph_has_memory(then) ? UNSUPPORTED : TYPE;
    for (size_t i = 0; i < now->nodes.count; i++) {
        *at = then->nodes.items[i];
        if (now->nodes.items[i]->type != (*at)->type)
            return TYPE;
        if (now->nodes.items[i]->needs.count != (*at)->needs.count)
            return TOPOLOGY;
    }
    *at = NULL;
    return 0;
}

/* Later updates and settings still name nodes of the graph it was made from. */
static void keep_names(const struct graph *old, const struct graph *fresh)
{
    for (size_t i = 0; i < old->nodes.count; i++)
        fresh->nodes.items[i]->original = old->nodes.items[i]->original;
}

static CUresult replace(struct driver *driver, struct exec *exec, struct graph *graph)
{
    struct node_set order = {0};
    struct graph *fresh = graph_copy(driver, graph);
    if (fresh == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = graph_order(fresh, &order);
    if (result != CUDA_SUCCESS) {
        graph_release(driver, fresh);
        node_set_clear(&order);
        return result;
    }
    keep_names(exec->graph, fresh);
    graph_release(driver, exec->graph);
    node_set_clear(&exec->order);
    exec->graph = fresh;
    exec->order = order;
    return CUDA_SUCCESS;
}

API CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, struct update_result *out)
{
    struct driver *driver;
    CUgraphNode at;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_exec(exec) || !is_graph(graph) || out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    int reason = difference(exec->graph, graph, &at);
    *out = (struct update_result){.result = reason, .node = at};
    return reason == 0 ? replace(driver, exec, graph) : (CUresult)ERROR_EXEC_UPDATE;
}

API CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
                               int *reason)
{
    struct update_result found;
    CUresult result = cuGraphExecUpdate_v2(exec, graph, &found);
    if (result != CUDA_SUCCESS && result != (CUresult)ERROR_EXEC_UPDATE)
        return result;
    if (error_node != NULL)
        *error_node = found.node;
    if (reason != NULL)
        *reason = found.result;
    return result;
}
