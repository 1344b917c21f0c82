#include "cuda/graph/need.h"

#include "cuda/memory/payer.h"
#include "cuda/time/collective.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Addresses that a node allocates, or the start of what it frees. */
struct range {
    CUdeviceptr start;
    CUdeviceptr end;
    int device; /* index in the configuration; -1 not granted */
    int balance;
};

/* What was found so far. pending: graphs still to be looked through. They are a list because graphs
 * nest as deep as the program likes, also on a thread with a small stack. */
struct ranges {
    struct process *process;
    struct range *items;
    size_t count;
    size_t size;
    CUgraph *pending;
    size_t pending_count;
    size_t pending_size;
    bool collective;
};

/* Room for one more item. 0, or -ENOMEM. */
static int make_room(void **items, size_t item_size, size_t count, size_t *size)
{
    if (count < *size)
        return 0;
    size_t larger = *size == 0 ? 32 : *size * 2;
    void *moved = realloc(*items, larger * item_size);
    if (moved == NULL)
        return -ENOMEM;
    *items = moved;
    *size = larger;
    return 0;
}

static CUresult add(struct ranges *ranges, struct range range)
{
    void *items = ranges->items;
    if (make_room(&items, sizeof range, ranges->count, &ranges->size) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ranges->items = items;
    ranges->items[ranges->count++] = range;
    return CUDA_SUCCESS;
}

static CUresult add_pending(struct ranges *ranges, CUgraph graph)
{
    void *pending = ranges->pending;
    if (make_room(&pending, sizeof graph, ranges->pending_count, &ranges->pending_size) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ranges->pending = pending;
    ranges->pending[ranges->pending_count++] = graph;
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

static CUresult add_child(struct ranges *ranges, CUgraphNode node)
{
    CUgraph child = NULL;
    CUresult result = REAL(cuGraphChildGraphNodeGetGraph)(node, &child);
    return result == CUDA_SUCCESS ? add_pending(ranges, child) : result;
}

static CUresult add_node(struct ranges *ranges, CUgraphNode node)
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
        return add_child(ranges, node);
    default:
        return CUDA_SUCCESS;
    }
}

static CUresult add_nodes(struct ranges *ranges, CUgraph graph)
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
        result = add_node(ranges, nodes[i]);
    free(nodes);
    return result;
}

static CUresult add_graphs(struct ranges *ranges, CUgraph outermost)
{
    CUresult result = add_pending(ranges, outermost);
    while (result == CUDA_SUCCESS && ranges->pending_count > 0)
        result = add_nodes(ranges, ranges->pending[--ranges->pending_count]);
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
    CUresult result = add_graphs(&ranges, graph);
    *need = (struct graph_need){.collective = ranges.collective};
    if (result == CUDA_SUCCESS && ranges.count > 0) {
        qsort(ranges.items, ranges.count, sizeof *ranges.items, by_start);
        sum(&ranges, need);
        need->keeps = keeps(&ranges);
    }
    free(ranges.pending);
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
