/* Edges: which nodes need which. Edges that carry something (ports, types) are not simulated. */
#include "cuda/graph/graph.h"
#include <stdlib.h>
#include <string.h>

static void remove_from(struct node_set *set, const struct node *node)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->items[i] == node) {
            memmove(&set->items[i], &set->items[i + 1], (--set->count - i) * sizeof *set->items);
            return;
        }
}

static bool plain(const struct edge_data *data, size_t count)
{
    static const struct edge_data none;
    for (size_t i = 0; data != NULL && i < count; i++)
        if (memcmp(&data[i], &none, sizeof none) != 0)
            return false;
    return true;
}

static bool valid_pairs(CUgraph graph, CUgraphNode const *from, CUgraphNode const *to, size_t count)
{
    if (!is_graph(graph) || (count > 0 && (from == NULL || to == NULL)))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!is_node(from[i]) || !is_node(to[i]) || from[i]->graph != graph ||
            to[i]->graph != graph || from[i] == to[i])
            return false;
    return true;
}

API CUresult cuGraphAddDependencies_v2(CUgraph graph, CUgraphNode const *from,
                                       CUgraphNode const *to, const struct edge_data *data,
                                       size_t count)
{
    if (!valid_pairs(graph, from, to, count))
        return CUDA_ERROR_INVALID_VALUE;
    if (!plain(data, count))
        return CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < count; i++)
        if (node_set_has(&to[i]->needs, from[i]))
            return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (node_set_add(&to[i]->needs, from[i]) != 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

API CUresult cuGraphAddDependencies(CUgraph graph, CUgraphNode const *from, CUgraphNode const *to,
                                    size_t count)
{
    return cuGraphAddDependencies_v2(graph, from, to, NULL, count);
}

/* Not in graphs that allocate or free, as documented. */
API CUresult cuGraphRemoveDependencies_v2(CUgraph graph, CUgraphNode const *from,
                                          CUgraphNode const *to, const struct edge_data *data,
                                          size_t count)
{
    if (!valid_pairs(graph, from, to, count) || !plain(data, count) || graph_has_memory(graph))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!node_set_has(&to[i]->needs, from[i]))
            return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        remove_from(&to[i]->needs, from[i]);
    return CUDA_SUCCESS;
}

API CUresult cuGraphRemoveDependencies(CUgraph graph, CUgraphNode const *from,
                                       CUgraphNode const *to, size_t count)
{
    return cuGraphRemoveDependencies_v2(graph, from, to, NULL, count);
}

API CUresult cuGraphDestroyNode(CUgraphNode node)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_node(node) || graph_has_memory(node->graph))
        return CUDA_ERROR_INVALID_VALUE;
    struct node_set *nodes = &node->graph->nodes;
    for (size_t i = 0; i < nodes->count; i++)
        remove_from(&nodes->items[i]->needs, node);
    remove_from(nodes, node);
    node_release(driver, node);
    return CUDA_SUCCESS;
}

/* A list for the caller, filled item by item. found: how many there were. */
struct listing {
    CUgraphNode *from, *to;
    struct edge_data *data;
    size_t room, found;
};

static void enter(struct listing *listing, struct node *from, struct node *to)
{
    if (listing->found < listing->room) {
        if (listing->from != NULL)
            listing->from[listing->found] = from;
        if (listing->to != NULL)
            listing->to[listing->found] = to;
        if (listing->data != NULL)
            listing->data[listing->found] = (struct edge_data){0};
    }
    listing->found++;
}

static CUresult tell(const struct listing *listing, size_t *count)
{
    bool asked = listing->from != NULL || listing->to != NULL;
    *count = asked && listing->found > listing->room ? listing->room : listing->found;
    return CUDA_SUCCESS;
}

API CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
                                struct edge_data *data, size_t *count)
{
    if (!is_graph(graph) || count == NULL || (from == NULL) != (to == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    struct listing listing = {.from = from, .to = to, .data = data, .room = *count};
    for (size_t i = 0; i < graph->nodes.count; i++) {
        struct node *node = graph->nodes.items[i];
        for (size_t j = 0; j < node->needs.count; j++)
            enter(&listing, node->needs.items[j], node);
    }
    return tell(&listing, count);
}

API CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    return cuGraphGetEdges_v2(graph, from, to, NULL, count);
}

API CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *out,
                                           struct edge_data *data, size_t *count)
{
    if (!is_node(node) || count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct listing listing = {.from = out, .data = data, .room = *count};
    for (size_t i = 0; i < node->needs.count; i++)
        enter(&listing, node->needs.items[i], node);
    return tell(&listing, count);
}

API CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *out, size_t *count)
{
    return cuGraphNodeGetDependencies_v2(node, out, NULL, count);
}

API CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *out,
                                             struct edge_data *data, size_t *count)
{
    if (!is_node(node) || count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct listing listing = {.to = out, .data = data, .room = *count};
    const struct node_set *nodes = &node->graph->nodes;
    for (size_t i = 0; i < nodes->count; i++)
        if (node_set_has(&nodes->items[i]->needs, node))
            enter(&listing, node, nodes->items[i]);
    return tell(&listing, count);
}

API CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *out, size_t *count)
{
    return cuGraphNodeGetDependentNodes_v2(node, out, NULL, count);
}
