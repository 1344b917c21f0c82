/* Nodes that allocate and free. Within one graph an address is given out again where its free is
 * certain to have come before. */
#include "cuda/graph/graph.h"
#include "cuda/memory/location.h"

/* A block of that size that is freed, in this graph, before anything that follows `needs`. */
static struct graph_block *reusable(const struct graph *graph, const struct node_set *needs,
                                    int device, uint64_t bytes)
{
    for (size_t i = 0; i < graph->nodes.count; i++) {
        struct node *node = graph->nodes.items[i];
        if (node->type != NODE_FREE || node->block->freed_by != node)
            continue;
        if (node->block->device == device && node->block->bytes == bytes &&
            node_set_follows(needs, node))
            return node->block;
    }
    return NULL;
}

static bool valid(const struct driver *driver, const struct alloc_params *params, int *device)
{
    enum { PINNED = 1 };
    if (params == NULL || params->bytes == 0 || params->pool.allocation != PINNED ||
        params->pool.handles != 0)
        return false;
    CUmemLocation location = {params->pool.location.type, params->pool.location.id};
    return location_resolve(driver, &location, device) == CUDA_SUCCESS && *device >= 0;
}

CUresult node_of_alloc(struct driver *driver, struct graph *graph, CUgraphNode const *needs,
                       size_t count, struct alloc_params *params, struct node *out)
{
    int device;
    if (!valid(driver, params, &device))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    const struct node_set before = {.items = (struct node **)needs, .count = count};
    struct graph_block *block = reusable(graph, &before, device, params->bytes);
    if (block == NULL)
        result = block_new(driver, device, params->bytes, &block);
    if (result != CUDA_SUCCESS)
        return result;
    block->freed_by = NULL;
    block->graph = graph->number;
    block_hold(driver, block);
    *out = (struct node){.type = NODE_ALLOC, .alloc = *params, .block = block};
    out->alloc.address = block->start;
    return CUDA_SUCCESS;
}

/* Allocations of the block in the graph less frees of it there. */
static int balance(const struct graph *graph, const struct graph_block *block)
{
    int sum = 0;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        if (node->type == NODE_ALLOC && node->block == block)
            sum++;
        if (node->type == NODE_FREE && node->block == block)
            sum--;
    }
    return sum;
}

CUresult node_of_free(struct driver *driver, const struct graph *graph, CUdeviceptr address,
                      struct node *out)
{
    struct graph_block *block = block_at(driver, address);
    if (block == NULL || balance(graph, block) < (block->graph == graph->number ? 1 : 0))
        return CUDA_ERROR_INVALID_VALUE;
    block_hold(driver, block);
    *out = (struct node){.type = NODE_FREE, .block = block};
    return CUDA_SUCCESS;
}
