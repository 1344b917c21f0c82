/* What nodes are set to: asked and changed. */
#include "cuda/graph/params.h"
#include "cuda/stream/queue.h"

static bool is_node_of(const struct node *node, enum node_type type)
{
    return is_node(node) && node->type == type;
}

API CUresult cuGraphNodeGetType(CUgraphNode node, int *out)
{
    if (!is_node(node) || out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (int)node->type;
    return CUDA_SUCCESS;
}

/* As given, but that the parameters of the kernel are those kept with the node. */
static struct kernel_params kernel_params_of(struct node *node)
{
    struct kernel_params params = node->kernel.params;
    params.v1.parameters = &node->kernel.pointer_to_first;
    params.v1.extra = NULL;
    return params;
}

API CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, struct kernel_params *out)
{
    if (!is_node_of(node, NODE_KERNEL) || out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = kernel_params_of(node);
    return CUDA_SUCCESS;
}

API CUresult cuGraphKernelNodeGetParams(CUgraphNode node, struct kernel_params_v1 *out)
{
    if (!is_node_of(node, NODE_KERNEL) || out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = kernel_params_of(node).v1;
    return CUDA_SUCCESS;
}

API CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, struct copy_params *out)
{
    if (!is_node_of(node, NODE_COPY) || out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = node->copy;
    return CUDA_SUCCESS;
}

API CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, struct fill_params *out)
{
    if (!is_node_of(node, NODE_FILL) || out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = node->fill;
    return CUDA_SUCCESS;
}

API CUresult cuGraphHostNodeGetParams(CUgraphNode node, struct host_params *out)
{
    if (!is_node_of(node, NODE_HOST) || out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = node->host;
    return CUDA_SUCCESS;
}

API CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *out)
{
    if (!is_node_of(node, NODE_CHILD) || out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = node->child;
    return CUDA_SUCCESS;
}

API CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, struct alloc_params *out)
{
    if (!is_node_of(node, NODE_ALLOC) || out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = node->alloc;
    return CUDA_SUCCESS;
}

API CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *out)
{
    if (!is_node_of(node, NODE_FREE) || out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = node->block->start;
    return CUDA_SUCCESS;
}

API CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *out)
{
    if (!is_node_of(node, NODE_RECORD) || out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = node->event;
    return CUDA_SUCCESS;
}

API CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *out)
{
    if (!is_node_of(node, NODE_WAIT) || out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = node->event;
    return CUDA_SUCCESS;
}

/* Take over what `like` does, if it is of the same kind. */
static CUresult set(struct node *node, CUresult checked, const struct node *like)
{
    if (checked != CUDA_SUCCESS)
        return checked;
    if (!is_node_of(node, like->type))
        return CUDA_ERROR_INVALID_VALUE;
    switch (like->type) {
    case NODE_KERNEL:
        node->kernel = like->kernel;
        node->kernel.pointer_to_first = &node->kernel.first;
        return CUDA_SUCCESS;
    case NODE_COPY:
        node->copy = like->copy;
        return CUDA_SUCCESS;
    case NODE_FILL:
        node->fill = like->fill;
        return CUDA_SUCCESS;
    case NODE_HOST:
        node->host = like->host;
        return CUDA_SUCCESS;
    default:
        node->event = like->event;
        return CUDA_SUCCESS;
    }
}

CUresult node_change_kernel(struct node *node, const struct kernel_params *params)
{
    struct node like;
    return params == NULL ? CUDA_ERROR_INVALID_VALUE
                          : set(node, node_of_kernel(params, &like), &like);
}

CUresult node_change_kernel_v1(struct node *node, const struct kernel_params_v1 *params)
{
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return node_change_kernel(node, &(struct kernel_params){.v1 = *params});
}

CUresult node_change_copy(struct node *node, const struct copy_params *params)
{
    struct node like;
    return set(node, node_of_copy(params, &like), &like);
}

CUresult node_change_fill(struct node *node, const struct fill_params *params)
{
    struct node like;
    return set(node, node_of_fill(params, &like), &like);
}

CUresult node_change_host(struct node *node, const struct host_params *params)
{
    if (params == NULL || params->call == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return set(node, CUDA_SUCCESS, &(struct node){.type = NODE_HOST, .host = *params});
}

CUresult node_change_event(struct node *node, enum node_type type, CUevent event)
{
    if (event == NULL || event->kind != EVENT)
        return CUDA_ERROR_INVALID_HANDLE;
    return set(node, CUDA_SUCCESS, &(struct node){.type = type, .event = event});
}

API CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const struct kernel_params *params)
{
    return node_change_kernel(node, params);
}

API CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const struct kernel_params_v1 *params)
{
    return node_change_kernel_v1(node, params);
}

API CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const struct copy_params *params)
{
    return node_change_copy(node, params);
}

API CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const struct fill_params *params)
{
    return node_change_fill(node, params);
}

API CUresult cuGraphHostNodeSetParams(CUgraphNode node, const struct host_params *params)
{
    return node_change_host(node, params);
}

API CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
    return node_change_event(node, NODE_RECORD, event);
}

API CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
    return node_change_event(node, NODE_WAIT, event);
}

CUresult node_change_any(struct node *node, const struct node_params *params)
{
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    switch (params->type) {
    case NODE_KERNEL:
        return node_change_kernel(node, &params->kernel);
    case NODE_COPY:
        return node_change_copy(node, &params->copy.copy);
    case NODE_FILL:
        return node_change_fill(node, &params->fill);
    case NODE_HOST:
        return node_change_host(node, &params->host);
    case NODE_WAIT:
    case NODE_RECORD:
        return node_change_event(node, (enum node_type)params->type, params->event);
    case NODE_MEMORY:
        return node_change_memory(node, &params->memory);
    default: /* memory nodes and child graphs do not change */
        return CUDA_ERROR_INVALID_VALUE;
    }
}

API CUresult cuGraphNodeSetParams(CUgraphNode node, struct node_params *params)
{
    return node_change_any(node, params);
}
ALSO(cuGraphNodeSetParams, cuGraphNodeSetParams_v2);
