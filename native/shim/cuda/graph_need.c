#include "cuda/graph_need.h"

#include "cuda/collective.h"
#include "cuda/payer.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_MOST = 16 }; /* of graphs in graphs */

/* Addresses that a node allocates, or the start of what it frees. */
struct range {
    CUdeviceptr start;
    CUdeviceptr end;
    int device; /* index in the configuration; -1 not granted */
    int balance;
};

struct ranges {
    struct process *process;
    struct range *items;
    size_t count;
    size_t size;
    bool collective;
};

static CUresult add(struct ranges *ranges, struct range range)
{
    if (ranges->count == ranges->size) {
        size_t size = ranges->size == 0 ? 32 : ranges->size * 2;
        struct range *items = realloc(ranges->items, size * sizeof *items);
        if (items == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        ranges->items = items;
        ranges->size = size;
    }
    ranges->items[ranges->count++] = range;
    return CUDA_SUCCESS;
}

static CUresult add_allocation(struct ranges *ranges, CUgraphNode node)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.bytesize = 0};
    CUresult result = REAL(cuGraphMemAllocNodeGetParams)(node, &params);
    if (result != CUDA_SUCCESS)
        return result;
    struct location location = payer_of(&params.poolProps.location, params.poolProps.allocType);
    payer_report(ranges->process, &location, CUDA_SUCCESS);
    if (location.payer == PAYER_NOBODY)
        return CUDA_SUCCESS;
    int device = process_device(ranges->process, location.ordinal);
    return add(ranges, (struct range){params.dptr, params.dptr + params.bytesize, device, 1});
}

static CUresult add_free(struct ranges *ranges, CUgraphNode node)
{
    CUdeviceptr address = 0;
    CUresult result = REAL(cuGraphMemFreeNodeGetParams)(node, &address);
    return result == CUDA_SUCCESS ? add(ranges, (struct range){address, address, 0, -1}) : result;
}

static CUresult add_graph(struct ranges *ranges, CUgraph graph, int depth);

static CUresult add_child(struct ranges *ranges, CUgraphNode node, int depth)
{
    CUgraph child = NULL;
    if (depth == DEPTH_MOST)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuGraphChildGraphNodeGetGraph)(node, &child);
    return result == CUDA_SUCCESS ? add_graph(ranges, child, depth + 1) : result;
}

static CUresult add_node(struct ranges *ranges, CUgraphNode node, int depth)
{
    int type;
    CUresult result = REAL(cuGraphNodeGetType)(node, &type);
    if (result != CUDA_SUCCESS)
        return result;
    switch (type) {
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return add_allocation(ranges, node);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return add_free(ranges, node);
    case CU_GRAPH_NODE_TYPE_KERNEL:
        ranges->collective = ranges->collective || collective_node(ranges->process, node);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return add_child(ranges, node, depth);
    default:
        return CUDA_SUCCESS;
    }
}

static CUresult add_graph(struct ranges *ranges, CUgraph graph, int depth)
{
    size_t count = 0;
    CUresult result = REAL(cuGraphGetNodes)(graph, NULL, &count);
    if (result != CUDA_SUCCESS || count == 0)
        return result;
    CUgraphNode *nodes = calloc(count, sizeof *nodes);
    if (nodes == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = REAL(cuGraphGetNodes)(graph, nodes, &count);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = add_node(ranges, nodes[i], depth);
    free(nodes);
    return result;
}

static int by_start(const void *left, const void *right)
{
    const struct range *a = left, *b = right;
    return (a->start > b->start) - (a->start < b->start);
}

static uint64_t round_up(uint64_t bytes, uint64_t piece)
{
    return (bytes + piece - 1) / piece * piece;
}

/* Pieces that ranges have in common make them one. */
struct span {
    uint64_t start;
    uint64_t end;
};

static void close_span(struct graph_need *need, int device, const struct span *span)
{
    need->fine[device] += span->end - span->start;
    need->coarse[device] += round_up(span->end - span->start, GRAPH_COARSE);
}

static void add_range(struct graph_need *need, const struct range *range, struct span *span)
{
    uint64_t start = range->start / GRAPH_FINE * GRAPH_FINE;
    uint64_t end = round_up(range->end, GRAPH_FINE);
    if (start >= span->end) {
        close_span(need, range->device, span);
        *span = (struct span){start, end};
    } else if (end > span->end) {
        span->end = end;
    }
}

static void sum(const struct ranges *ranges, struct graph_need *need)
{
    struct span spans[VCUDA_DEVICES] = {{0, 0}};
    for (size_t i = 0; i < ranges->count; i++) {
        const struct range *range = &ranges->items[i];
        if (range->balance < 0)
            continue;
        need->any = true;
        need->foreign |= range->device < 0;
        if (range->device >= 0)
            add_range(need, range, &spans[range->device]);
    }
    for (int device = 0; device < VCUDA_DEVICES; device++)
        close_span(need, device, &spans[device]);
}

/* Is something allocated more often than freed? Ranges of one start lie together. */
static bool keeps(const struct ranges *ranges)
{
    int balance = 0;
    for (size_t i = 0; i < ranges->count; i++) {
        if (i == 0 || ranges->items[i].start != ranges->items[i - 1].start)
            balance = 0;
        balance += ranges->items[i].balance;
        bool last = i + 1 == ranges->count || ranges->items[i + 1].start != ranges->items[i].start;
        if (last && balance > 0)
            return true;
    }
    return false;
}

CUresult graph_need_of(struct process *process, CUgraph graph, struct graph_need *need)
{
    struct ranges ranges = {.process = process};
    CUresult result = add_graph(&ranges, graph, 0);
    *need = (struct graph_need){.collective = ranges.collective};
    if (result == CUDA_SUCCESS && ranges.count > 0) {
        qsort(ranges.items, ranges.count, sizeof *ranges.items, by_start);
        sum(&ranges, need);
        need->keeps = keeps(&ranges);
    }
    free(ranges.items);
    return result;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void graph_need_raise(struct graph_need *need, const struct graph_need *other)
{
    for (unsigned device = 0; device < VCUDA_DEVICES; device++) {
        need->coarse[device] = larger(need->coarse[device], other->coarse[device]);
        need->fine[device] = larger(need->fine[device], other->fine[device]);
    }
    need->any |= other->any;
    need->keeps |= other->keeps;
    need->foreign |= other->foreign;
}
