/* Nodes: what each kind does, and adding it to a graph. */
#include "cuda/graph/conditional.h"
#include "cuda/module/module.h"
#include "cuda/stream/queue.h"
#include <stdlib.h>
#include <string.h>

CUresult node_of_kernel(const struct kernel_params *params, struct node *out)
{
    const struct kernel_params_v1 *shape = &params->v1;
    CUfunction function = shape->function != NULL ? shape->function : params->kernel;
    CUlaunchConfig config = {
        shape->grid_x,  shape->grid_y, shape->grid_z, shape->block_x, shape->block_y,
        shape->block_z, shape->shared, NULL,          NULL,           0};
    CUresult result = launch_check(&config, function);
    if (result != CUDA_SUCCESS)
        return result;
    *out = (struct node){.type = NODE_KERNEL, .kernel.params = *params};
    result = launch_duration(function, shape->parameters, shape->extra, &out->kernel.duration_ns);
    out->kernel.first = out->kernel.duration_ns;
    return result;
}

API CUresult cuGraphAddKernelNode_v2(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs,
                                     size_t count, const struct kernel_params *params)
{
    struct driver *driver;
    struct node node;
    CUresult result = graph_add_check(out, graph, needs, count, &driver);
    if (result == CUDA_SUCCESS)
        result = params != NULL ? node_of_kernel(params, &node) : CUDA_ERROR_INVALID_VALUE;
    return result == CUDA_SUCCESS ? graph_add(driver, graph, &node, needs, count, out) : result;
}

API CUresult cuGraphAddKernelNode(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs,
                                  size_t count, const struct kernel_params_v1 *params)
{
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct kernel_params full = {.v1 = *params};
    return cuGraphAddKernelNode_v2(out, graph, needs, count, &full);
}

CUresult node_of_copy(const struct copy_params *params, struct node *out)
{
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (struct node){.type = NODE_COPY, .copy = *params};
    return CUDA_SUCCESS;
}

API CUresult cuGraphAddMemcpyNode(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs,
                                  size_t count, const struct copy_params *params, CUcontext context)
{
    struct driver *driver;
    struct node node;
    (void)context;
    CUresult result = graph_add_check(out, graph, needs, count, &driver);
    if (result == CUDA_SUCCESS)
        result = node_of_copy(params, &node);
    return result == CUDA_SUCCESS ? graph_add(driver, graph, &node, needs, count, out) : result;
}

CUresult node_of_fill(const struct fill_params *params, struct node *out)
{
    if (params == NULL || (params->element != 1 && params->element != 2 && params->element != 4))
        return CUDA_ERROR_INVALID_VALUE;
    *out = (struct node){.type = NODE_FILL, .fill = *params};
    return CUDA_SUCCESS;
}

API CUresult cuGraphAddMemsetNode(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs,
                                  size_t count, const struct fill_params *params, CUcontext context)
{
    struct driver *driver;
    struct node node;
    (void)context;
    CUresult result = graph_add_check(out, graph, needs, count, &driver);
    if (result == CUDA_SUCCESS)
        result = node_of_fill(params, &node);
    return result == CUDA_SUCCESS ? graph_add(driver, graph, &node, needs, count, out) : result;
}

API CUresult cuGraphAddHostNode(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs,
                                size_t count, const struct host_params *params)
{
    struct driver *driver;
    CUresult result = graph_add_check(out, graph, needs, count, &driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (params == NULL || params->call == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct node node = {.type = NODE_HOST, .host = *params};
    return graph_add(driver, graph, &node, needs, count, out);
}

API CUresult cuGraphAddEmptyNode(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs,
                                 size_t count)
{
    struct driver *driver;
    CUresult result = graph_add_check(out, graph, needs, count, &driver);
    struct node node = {.type = NODE_EMPTY};
    return result == CUDA_SUCCESS ? graph_add(driver, graph, &node, needs, count, out) : result;
}

static CUresult add_event(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs, size_t count,
                          enum node_type type, CUevent event)
{
    struct driver *driver;
    CUresult result = graph_add_check(out, graph, needs, count, &driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (event == NULL || event->kind != EVENT)
        return CUDA_ERROR_INVALID_HANDLE;
    struct node node = {.type = type, .event = event};
    return graph_add(driver, graph, &node, needs, count, out);
}

API CUresult cuGraphAddEventRecordNode(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs,
                                       size_t count, CUevent event)
{
    return add_event(out, graph, needs, count, NODE_RECORD, event);
}

API CUresult cuGraphAddEventWaitNode(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs,
                                     size_t count, CUevent event)
{
    return add_event(out, graph, needs, count, NODE_WAIT, event);
}

/* With memory nodes in it a child can only be moved in. */
static CUresult add_child(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs, size_t count,
                          const struct child_params *params)
{
    struct driver *driver;
    CUresult result = graph_add_check(out, graph, needs, count, &driver);
    if (result != CUDA_SUCCESS)
        return result;
    bool move = params->ownership == 1;
    if (!is_graph(params->graph) || params->graph == graph ||
        (!move && graph_has_memory(params->graph)))
        return CUDA_ERROR_INVALID_VALUE;
    struct graph *child = move ? params->graph : graph_copy(driver, params->graph);
    if (child == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct node node = {.type = NODE_CHILD, .child = child};
    return graph_add(driver, graph, &node, needs, count, out);
}

API CUresult cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs,
                                      size_t count, CUgraph child)
{
    struct child_params params = {.graph = child};
    return add_child(out, graph, needs, count, &params);
}

API CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs,
                                    size_t count, struct alloc_params *params)
{
    struct driver *driver;
    struct node node;
    CUresult result = graph_add_check(out, graph, needs, count, &driver);
    if (result == CUDA_SUCCESS)
        result = node_of_alloc(driver, graph, needs, count, params, &node);
    if (result == CUDA_SUCCESS)
        result = graph_add(driver, graph, &node, needs, count, out);
    if (result == CUDA_SUCCESS)
        params->address = (*out)->alloc.address;
    return result;
}

API CUresult cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs,
                                   size_t count, CUdeviceptr address)
{
    struct driver *driver;
    struct node node;
    CUresult result = graph_add_check(out, graph, needs, count, &driver);
    if (result == CUDA_SUCCESS)
        result = node_of_free(driver, graph, address, &node);
    if (result == CUDA_SUCCESS)
        result = graph_add(driver, graph, &node, needs, count, out);
    if (result == CUDA_SUCCESS && node.block->graph == graph->number)
        node.block->freed_by = *out;
    return result;
}

API CUresult cuGraphAddBatchMemOpNode(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs,
                                      size_t count, const struct memory_batch *params);

API CUresult cuGraphAddNode(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs, size_t count,
                            struct node_params *params)
{
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    switch (params->type) {
    case NODE_KERNEL:
        return cuGraphAddKernelNode_v2(out, graph, needs, count, &params->kernel);
    case NODE_COPY:
        return cuGraphAddMemcpyNode(out, graph, needs, count, &params->copy.copy, NULL);
    case NODE_FILL:
        return cuGraphAddMemsetNode(out, graph, needs, count, &params->fill, NULL);
    case NODE_HOST:
        return cuGraphAddHostNode(out, graph, needs, count, &params->host);
    case NODE_CHILD:
        return add_child(out, graph, needs, count, &params->child);
    case NODE_EMPTY:
        return cuGraphAddEmptyNode(out, graph, needs, count);
    case NODE_WAIT:
    case NODE_RECORD:
        return add_event(out, graph, needs, count, (enum node_type)params->type, params->event);
    case NODE_ALLOC:
        return cuGraphAddMemAllocNode(out, graph, needs, count, &params->alloc);
    case NODE_FREE:
        return cuGraphAddMemFreeNode(out, graph, needs, count, params->address);
    case NODE_MEMORY:
        return cuGraphAddBatchMemOpNode(out, graph, needs, count, &params->memory);
    case NODE_CONDITIONAL:
        return conditional_add(out, graph, needs, count, &params->conditional);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

API CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs,
                               const struct edge_data *data, size_t count,
                               struct node_params *params)
{
    static const struct edge_data none;
    for (size_t i = 0; data != NULL && i < count; i++)
        if (memcmp(&data[i], &none, sizeof none) != 0)
            return CUDA_ERROR_NOT_SUPPORTED;
    return cuGraphAddNode(out, graph, needs, count, params);
}
ALSO(cuGraphAddNode_v2, cuGraphAddNode_v3);
