/* Nodes of batches of memory operations (stream/memory.h). */
#include "cuda/graph/params.h"
#include "cuda/stream/memory.h"
#include <stdlib.h>

/* What a node is to have instead: checked, and its own. */
static CUresult own_copy(const struct memory_batch *params, struct memory_batch *out)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = stream_memory_check(driver, params);
    return result == CUDA_SUCCESS ? stream_memory_copy(params, out) : result;
}

API CUresult cuGraphAddBatchMemOpNode(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs,
                                      size_t count, const struct memory_batch *params)
{
    struct driver *driver;
    struct node node = {.type = NODE_MEMORY};
    CUresult result = graph_add_check(out, graph, needs, count, &driver);
    if (result == CUDA_SUCCESS)
        result = own_copy(params, &node.memory);
    return result == CUDA_SUCCESS ? graph_add(driver, graph, &node, needs, count, out) : result;
}

API CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, struct memory_batch *out)
{
    if (!is_node(node) || node->type != NODE_MEMORY || out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = node->memory;
    return CUDA_SUCCESS;
}

CUresult node_change_memory(struct node *node, const struct memory_batch *params)
{
    struct memory_batch fresh;
    if (!is_node(node) || node->type != NODE_MEMORY)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = own_copy(params, &fresh);
    if (result != CUDA_SUCCESS)
        return result;
    free(node->memory.operations);
    node->memory = fresh;
    return CUDA_SUCCESS;
}

API CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const struct memory_batch *params)
{
    return node_change_memory(node, params);
}
