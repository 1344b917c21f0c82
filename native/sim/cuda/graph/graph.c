/* Graphs themselves: made, copied, asked, destroyed. */
#include "cuda/graph/conditional.h"
#include "cuda/graph/user_object.h"
#include "cuda/stream/memory.h"
#include <stdlib.h>

struct graph *graph_new(struct driver *driver)
{
    struct graph *graph = calloc(1, sizeof *graph);
    if (graph != NULL) {
        graph->kind = GRAPH;
        graph->number = driver_number(driver);
        graph->references = 1;
    }
    return graph;
}

void node_release(struct driver *driver, struct node *node)
{
    if (node->type == NODE_CHILD)
        graph_release(driver, node->child);
    if (node->type == NODE_MEMORY)
        free(node->memory.operations);
    if (node->type == NODE_CONDITIONAL)
        conditional_release(driver, &node->conditional);
    if (node->type == NODE_ALLOC || node->type == NODE_FREE)
        block_drop(driver, node->block);
    node->kind = NO_OBJECT;
    node_set_clear(&node->needs);
    free(node);
}

void graph_release(struct driver *driver, struct graph *graph)
{
    if (graph == NULL || --graph->references > 0)
        return;
    graph->kind = NO_OBJECT;
    for (size_t i = 0; i < graph->nodes.count; i++)
        node_release(driver, graph->nodes.items[i]);
    node_set_clear(&graph->nodes);
    conditional_forget(driver, graph->number);
    held_release(&graph->held);
    free(graph);
}

bool graph_has_memory(const struct graph *graph)
{
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        if (node->type == NODE_ALLOC || node->type == NODE_FREE ||
            (node->type == NODE_CHILD && graph_has_memory(node->child)))
            return true;
    }
    return false;
}

struct node *graph_twin(const struct graph *graph, const struct node *original)
{
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (graph->nodes.items[i]->original == original->number)
            return graph->nodes.items[i];
    return NULL;
}

static bool valid_needs(const struct graph *graph, CUgraphNode const *needs, size_t count)
{
    if (count > 0 && needs == NULL)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!is_node(needs[i]) || needs[i]->graph != graph)
            return false;
    return true;
}

static int connect(struct node *node, CUgraphNode const *needs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!node_set_has(&node->needs, needs[i]) && node_set_add(&node->needs, needs[i]) != 0)
            return -1;
    return 0;
}

CUresult graph_add(struct driver *driver, struct graph *graph, const struct node *prototype,
                   CUgraphNode const *needs, size_t count, CUgraphNode *out)
{
    struct node *node = malloc(sizeof *node);
    if (node == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *node = *prototype;
    node->kind = NODE;
    node->graph = graph;
    node->number = driver_number(driver);
    node->original = 0;
    node->needs = (struct node_set){0};
    if (node->type == NODE_KERNEL)
        node->kernel.pointer_to_first = &node->kernel.first;
    if (connect(node, needs, count) != 0 || node_set_add(&graph->nodes, node) != 0) {
        node_release(driver, node);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = node;
    return CUDA_SUCCESS;
}

CUresult graph_add_check(CUgraphNode *out, CUgraph graph, CUgraphNode const *needs, size_t count,
                         struct driver **driver)
{
    CUresult result = driver_get(driver);
    if (result != CUDA_SUCCESS)
        return result;
    return out != NULL && is_graph(graph) && valid_needs(graph, needs, count)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult copy_node(struct driver *driver, struct graph *copy, struct node *node)
{
    struct node like = *node;
    if (node->type == NODE_CHILD && (like.child = graph_copy(driver, node->child)) == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (node->type == NODE_CONDITIONAL &&
        conditional_copy(driver, &node->conditional, &like.conditional) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (node->type == NODE_MEMORY &&
        stream_memory_copy(&node->memory, &like.memory) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (node->type == NODE_ALLOC || node->type == NODE_FREE)
        block_hold(driver, node->block);
    CUresult result = graph_add(driver, copy, &like, NULL, 0, &node->twin);
    if (result == CUDA_SUCCESS)
        node->twin->original = node->number;
    return result;
}

static CUresult copy_edges(const struct graph *graph)
{
    for (size_t i = 0; i < graph->nodes.count; i++) {
        struct node *node = graph->nodes.items[i];
        for (size_t j = 0; j < node->needs.count; j++)
            if (node_set_add(&node->twin->needs, node->needs.items[j]->twin) != 0)
                return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

struct graph *graph_copy(struct driver *driver, const struct graph *graph)
{
    struct graph *copy = graph_new(driver);
    CUresult result = copy != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < graph->nodes.count && result == CUDA_SUCCESS; i++)
        result = copy_node(driver, copy, graph->nodes.items[i]);
    if (result == CUDA_SUCCESS)
        result = copy_edges(graph);
    if (result == CUDA_SUCCESS && held_copy(graph->held, &copy->held) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        copy->original = graph->number;
        return copy;
    }
    graph_release(driver, copy);
    return NULL;
}

static bool ready(const struct node *node)
{
    for (size_t i = 0; i < node->needs.count; i++)
        if (!node->needs.items[i]->placed)
            return false;
    return !node->placed;
}

CUresult graph_order(const struct graph *graph, struct node_set *order)
{
    for (size_t i = 0; i < graph->nodes.count; i++)
        graph->nodes.items[i]->placed = false;
    for (size_t before = SIZE_MAX; order->count != before && order->count < graph->nodes.count;) {
        before = order->count;
        for (size_t i = 0; i < graph->nodes.count; i++) {
            struct node *node = graph->nodes.items[i];
            if (!ready(node))
                continue;
            if (node_set_add(order, node) != 0)
                return CUDA_ERROR_OUT_OF_MEMORY;
            node->placed = true;
        }
    }
    return order->count == graph->nodes.count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGraphCreate(CUgraph *out, unsigned flags)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct graph *graph = graph_new(driver);
    if (graph == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = graph;
    return CUDA_SUCCESS;
}

API CUresult cuGraphDestroy(CUgraph graph)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_graph(graph))
        return CUDA_ERROR_INVALID_VALUE;
    graph->kind = NO_OBJECT;
    held_release(&graph->held); /* while executable copies may still refer to it */
    graph_release(driver, graph);
    return CUDA_SUCCESS;
}

/* What allocates or frees cannot be cloned, as documented. */
API CUresult cuGraphClone(CUgraph *out, CUgraph graph)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || !is_graph(graph) || graph_has_memory(graph))
        return CUDA_ERROR_INVALID_VALUE;
    struct graph *copy = graph_copy(driver, graph);
    if (copy == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = copy;
    return CUDA_SUCCESS;
}

API CUresult cuGraphNodeFindInClone(CUgraphNode *out, CUgraphNode original, CUgraph clone)
{
    if (out == NULL || !is_node(original) || !is_graph(clone) ||
        clone->original != original->graph->number)
        return CUDA_ERROR_INVALID_VALUE;
    struct node *found = graph_twin(clone, original);
    if (found == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = found;
    return CUDA_SUCCESS;
}

/* Nodes for the caller: how many there are, or as many as there is room for. */
static void list(const struct graph *graph, bool roots_only, CUgraphNode *out, size_t *count)
{
    size_t found = 0, room = *count;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        struct node *node = graph->nodes.items[i];
        if (roots_only && node->needs.count > 0)
            continue;
        if (out != NULL && found == room)
            return;
        if (out != NULL)
            out[found] = node;
        found++;
    }
    for (size_t rest = found; out != NULL && rest < room; rest++)
        out[rest] = NULL;
    *count = found;
}

API CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *out, size_t *count)
{
    if (!is_graph(graph) || count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    list(graph, false, out, count);
    return CUDA_SUCCESS;
}

API CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *out, size_t *count)
{
    if (!is_graph(graph) || count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    list(graph, true, out, count);
    return CUDA_SUCCESS;
}
