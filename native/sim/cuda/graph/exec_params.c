/* Changing nodes of an executable graph, named by the nodes of the graph it was made from. */
#include "cuda/graph/params.h"

/* The executable copy of a node of the graph it was made from. */
static struct node *twin(CUgraphExec exec, CUgraphNode node)
{
    return is_exec(exec) && is_node(node) ? graph_twin(exec->graph, node) : NULL;
}

API CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                               const struct kernel_params *params)
{
    return node_change_kernel(twin(exec, node), params);
}

API CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const struct kernel_params_v1 *params)
{
    return node_change_kernel_v1(twin(exec, node), params);
}

API CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const struct copy_params *params, CUcontext context)
{
    (void)context;
    return node_change_copy(twin(exec, node), params);
}

API CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const struct fill_params *params, CUcontext context)
{
    (void)context;
    return node_change_fill(twin(exec, node), params);
}

API CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                          const struct host_params *params)
{
    return node_change_host(twin(exec, node), params);
}

API CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                const struct memory_batch *params)
{
    return node_change_memory(twin(exec, node), params);
}

API CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    return node_change_event(twin(exec, node), NODE_RECORD, event);
}

API CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    return node_change_event(twin(exec, node), NODE_WAIT, event);
}

/* As documented: of the same nodes, in the same order. */
static bool alike(const struct graph *now, const struct graph *then)
{
    if (now->nodes.count != then->nodes.count)
        return false;
    for (size_t i = 0; i < now->nodes.count; i++)
        if (now->nodes.items[i]->type != then->nodes.items[i]->type ||
            now->nodes.items[i]->needs.count != then->nodes.items[i]->needs.count)
            return false;
    return true;
}

API CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    struct node *found = twin(exec, node);
    if (found == NULL || found->type != NODE_CHILD || !is_graph(child) ||
        !alike(child, found->child))
        return CUDA_ERROR_INVALID_VALUE;
    struct graph *copy = graph_copy(driver, child);
    if (copy == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    graph_release(driver, found->child);
    found->child = copy;
    return CUDA_SUCCESS;
}

API CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                      struct node_params *params)
{
    return node_change_any(twin(exec, node), params);
}

/* Kernels, copies and fills can be left out of an executable graph. */
static struct node *switchable(CUgraphExec exec, CUgraphNode node)
{
    struct node *found = twin(exec, node);
    return found != NULL && found->type <= NODE_FILL ? found : NULL;
}

API CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled)
{
    struct node *found = switchable(exec, node);
    if (found == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    found->disabled = enabled == 0;
    return CUDA_SUCCESS;
}

API CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned *enabled)
{
    struct node *found = switchable(exec, node);
    if (found == NULL || enabled == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *enabled = !found->disabled;
    return CUDA_SUCCESS;
}
