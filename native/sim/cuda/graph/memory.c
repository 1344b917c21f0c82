#include "cuda/graph/memory.h"
#include "core/ledger.h"
#include "cuda/graph/graph.h"
#include "cuda/memory/addresses.h"
#include "cuda/stream/queue.h"
#include <stdlib.h>

static struct context *context_for(struct driver *driver, int device)
{
    struct context *current = context_current(driver);
    if (driver->primaries[device].kind == NO_OBJECT)
        driver->primaries[device].device = device; /* perhaps it never was made */
    return current != NULL && current->device == device ? current : &driver->primaries[device];
}

CUresult block_new(struct driver *driver, int device, uint64_t bytes, struct graph_block **out)
{
    if (bytes > UINT64_MAX - GRAPH_QUANTUM)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct graph_block *block = calloc(1, sizeof *block);
    if (block == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->device = device;
    block->bytes = bytes;
    block->size = (bytes + GRAPH_QUANTUM - 1) / GRAPH_QUANTUM * GRAPH_QUANTUM;
    struct allocation range = {.bytes = bytes,
                               .context = context_for(driver, device),
                               .block = block,
                               .number = driver_number(driver)};
    pthread_mutex_lock(&driver->mutex);
    int added = addresses_add(&driver->memory, &range, false, &block->start);
    pthread_mutex_unlock(&driver->mutex);
    if (added != 0) {
        free(block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = block;
    return CUDA_SUCCESS;
}

void block_hold(struct driver *driver, struct graph_block *block)
{
    pthread_mutex_lock(&driver->mutex);
    block->references++;
    pthread_mutex_unlock(&driver->mutex);
}

/* With driver->mutex held. */
static void drop(struct driver *driver, struct graph_block *block)
{
    struct allocation gone;
    if (--block->references > 0)
        return;
    addresses_remove(&driver->memory, block->start, &gone);
    free(block);
}

void block_drop(struct driver *driver, struct graph_block *block)
{
    pthread_mutex_lock(&driver->mutex);
    drop(driver, block);
    pthread_mutex_unlock(&driver->mutex);
}

struct graph_block *block_at(struct driver *driver, CUdeviceptr address)
{
    pthread_mutex_lock(&driver->mutex);
    const struct allocation *found = addresses_find(&driver->memory, address);
    struct graph_block *block = found != NULL && found->start == address ? found->block : NULL;
    pthread_mutex_unlock(&driver->mutex);
    return block;
}

static CUresult free_held(struct driver *driver, struct graph_block *block)
{
    if (!block->live)
        return CUDA_ERROR_INVALID_VALUE;
    block->live = false;
    driver->graphs[block->device].live -= block->size;
    drop(driver, block);
    return CUDA_SUCCESS;
}

void block_allocate(struct driver *driver, struct graph_block *block)
{
    pthread_mutex_lock(&driver->mutex);
    if (!block->live) {
        block->live = true;
        block->references++;
        driver->graphs[block->device].live += block->size;
    }
    pthread_mutex_unlock(&driver->mutex);
}

CUresult block_free(struct driver *driver, struct graph_block *block)
{
    pthread_mutex_lock(&driver->mutex);
    CUresult result = free_held(driver, block);
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

/* Each block a graph allocates, once, children's included. */
typedef void visitor(struct driver *driver, struct graph_block *block, void *argument);

static bool first_of_block(const struct graph *graph, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (graph->nodes.items[i]->type == NODE_ALLOC &&
            graph->nodes.items[i]->block == graph->nodes.items[index]->block)
            return false;
    return true;
}

static void visit(struct driver *driver, const struct graph *graph, visitor *call, void *argument)
{
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        if (node->type == NODE_CHILD)
            visit(driver, node->child, call, argument);
        if (node->type == NODE_ALLOC && first_of_block(graph, i))
            call(driver, node->block, argument);
    }
}

static void count_live(struct driver *driver, struct graph_block *block, void *count)
{
    (void)driver;
    *(unsigned *)count += block->live;
}

static void free_live(struct driver *driver, struct graph_block *block, void *argument)
{
    (void)argument;
    free_held(driver, block); /* refuses what is not live */
}

CUresult graph_memory_restart(struct driver *driver, struct exec *exec)
{
    unsigned live = 0;
    pthread_mutex_lock(&driver->mutex);
    visit(driver, exec->graph, count_live, &live);
    if (live > 0 && (exec->flags & EXEC_AUTO_FREE) != 0) {
        visit(driver, exec->graph, free_live, NULL);
        live = 0;
    }
    pthread_mutex_unlock(&driver->mutex);
    return live == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void add_missing(struct driver *driver, struct graph_block *block, void *needs)
{
    (void)driver;
    if (!block->live)
        ((uint64_t *)needs)[block->device] += block->size;
}

static uint64_t used(const struct driver *driver, int device)
{
    uint64_t most = driver->graphs[device].live;
    for (const struct exec *exec = driver->execs; exec != NULL; exec = exec->next)
        if (exec->footprint[device] > most)
            most = exec->footprint[device];
    return most;
}

/* Change what is reserved; driver->mutex is held. */
static CUresult resize(struct driver *driver, int device, uint64_t bytes)
{
    struct graph_store *store = &driver->graphs[device];
    uint64_t now = sim_lock(driver->state);
    int failed = ledger_resize(driver->state, driver->process, driver->gpus[device],
                               store->reserved, bytes, now);
    sim_unlock(driver->state);
    if (failed != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    store->reserved = bytes;
    if (bytes > store->reserved_high)
        store->reserved_high = bytes;
    return CUDA_SUCCESS;
}

static uint64_t number_of(const struct stream *stream)
{
    return stream != NULL ? stream->number : 0;
}

/* Does the graph, or one that was launched in its stream before, still run? Not in this stream. */
static bool runs_beside(struct driver *driver, const struct exec *exec, uint64_t stream)
{
    return exec->busy.end > 0 && exec->stream != stream &&
           !queue_reached(driver, exec->ran_on, exec->busy);
}

static uint64_t need_on(struct driver *driver, const struct exec *exec, int device)
{
    uint64_t needs[SIM_GPUS] = {0};
    visit(driver, exec->graph, add_missing, needs);
    return needs[device];
}

/* What graphs that run in other streams use, besides what is live: of each stream the most that one
 * of its graphs needs, for they do not run at once. */
static uint64_t beside(struct driver *driver, int device, uint64_t stream)
{
    uint64_t sum = 0;
    for (struct exec *exec = driver->execs; exec != NULL; exec = exec->next) {
        uint64_t need = runs_beside(driver, exec, stream) ? need_on(driver, exec, device) : 0;
        for (struct exec *other = driver->execs; other != NULL && need > 0; other = other->next) {
            bool beside = other != exec && other->stream == exec->stream &&
                          runs_beside(driver, other, stream);
            uint64_t its = beside ? need_on(driver, other, device) : 0;
            if (its > need || (its == need && other > exec))
                need = 0;
        }
        sum += need;
    }
    return sum;
}

static CUresult reserve(struct driver *driver, int device, uint64_t bytes)
{
    return bytes > driver->graphs[device].reserved ? resize(driver, device, bytes) : CUDA_SUCCESS;
}

/* The graph has to wait for those that run beside it. */
static void wait_for_others(struct driver *driver, uint64_t stream, struct lane_waits *waits)
{
    for (struct exec *exec = driver->execs; exec != NULL; exec = exec->next)
        if (runs_beside(driver, exec, stream))
            lane_waits_add(waits, exec->busy);
}

static CUresult map_device(struct driver *driver, struct exec *exec, int device, uint64_t needed,
                           uint64_t stream, struct lane_waits *waits)
{
    struct graph_store *store = &driver->graphs[device];
    if (needed == 0)
        return CUDA_SUCCESS;
    uint64_t footprint = store->live + needed, others = beside(driver, device, stream);
    CUresult result = reserve(driver, device, footprint + others);
    if (result != CUDA_SUCCESS && others > 0) {
        result = reserve(driver, device, footprint);
        wait_for_others(driver, stream, waits);
    }
    if (result != CUDA_SUCCESS)
        return result;
    exec->footprint[device] = footprint;
    uint64_t now_used = used(driver, device);
    if (now_used > store->used_high)
        store->used_high = now_used;
    return result;
}

CUresult graph_memory_map(struct driver *driver, struct exec *exec, struct stream *stream,
                          int device)
{
    uint64_t needs[SIM_GPUS] = {0};
    struct lane_waits waits = {{0}};
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&driver->mutex);
    visit(driver, exec->graph, add_missing, needs);
    for (unsigned at = 0; at < driver->device_count && result == CUDA_SUCCESS; at++)
        result = map_device(driver, exec, (int)at, needs[at], number_of(stream), &waits);
    pthread_mutex_unlock(&driver->mutex);
    if (result == CUDA_SUCCESS)
        queue_submit_waits(driver, stream, device, &waits);
    return result;
}

void graph_memory_busy(struct driver *driver, struct exec *exec, const struct stream *stream,
                       int device)
{
    exec->busy = queue_reach(driver, stream, device);
    exec->stream = number_of(stream);
    exec->ran_on = device;
    for (unsigned at = 0; at < driver->device_count; at++)
        if (exec->footprint[at] > 0)
            driver->graphs[at].busy = queue_all(driver, (int)at);
}

void graph_memory_unmap(struct driver *driver, struct exec *exec)
{
    pthread_mutex_lock(&driver->mutex);
    for (struct exec **link = &driver->execs; *link != NULL; link = &(*link)->next)
        if (*link == exec) {
            *link = exec->next;
            break;
        }
    pthread_mutex_unlock(&driver->mutex);
}

static CUresult trim(struct driver *driver, int device)
{
    if (!queue_reached(driver, device, driver->graphs[device].busy))
        return CUDA_SUCCESS;
    pthread_mutex_lock(&driver->mutex);
    for (struct exec *exec = driver->execs; exec != NULL; exec = exec->next)
        exec->footprint[device] = 0;
    CUresult result = resize(driver, device, driver->graphs[device].live);
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

/* While a graph may be running with some of it nothing is given back. */
API CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    struct driver *driver;
    const struct sim_gpu *gpu;
    CUresult result = driver_device(device, &driver, &gpu);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver->launching);
    result = trim(driver, device);
    pthread_mutex_unlock(&driver->launching);
    return result;
}

enum attribute { USED_CURRENT, USED_HIGH, RESERVED_CURRENT, RESERVED_HIGH };

API CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value)
{
    struct driver *driver;
    const struct sim_gpu *gpu;
    CUresult result = driver_device(device, &driver, &gpu);
    if (result != CUDA_SUCCESS)
        return result;
    if (value == NULL || attribute < USED_CURRENT || attribute > RESERVED_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    const struct graph_store *store = &driver->graphs[device];
    pthread_mutex_lock(&driver->mutex);
    const uint64_t values[] = {used(driver, device), store->used_high, store->reserved,
                               store->reserved_high};
    *(uint64_t *)value = values[attribute];
    pthread_mutex_unlock(&driver->mutex);
    return CUDA_SUCCESS;
}

/* High watermarks go back to what is now, which is what setting them to 0 means. */
API CUresult cuDeviceSetGraphMemAttribute(CUdevice device, int attribute, void *value)
{
    struct driver *driver;
    const struct sim_gpu *gpu;
    CUresult result = driver_device(device, &driver, &gpu);
    if (result != CUDA_SUCCESS)
        return result;
    if (value == NULL || *(uint64_t *)value != 0 ||
        (attribute != USED_HIGH && attribute != RESERVED_HIGH))
        return CUDA_ERROR_INVALID_VALUE;
    struct graph_store *store = &driver->graphs[device];
    pthread_mutex_lock(&driver->mutex);
    if (attribute == USED_HIGH)
        store->used_high = used(driver, device);
    else
        store->reserved_high = store->reserved;
    pthread_mutex_unlock(&driver->mutex);
    return CUDA_SUCCESS;
}
