/* Running an executable graph: its nodes one after another, as if each was put into the stream. */
#include "cuda/capture/capture.h"
#include "cuda/graph/conditional.h"
#include "cuda/stream/host_call.h"
#include "cuda/stream/memory.h"
#include "cuda/stream/queue.h"
#include "cuda/stream/tasks.h"

/* Where the nodes of one launch go. */
struct place {
    struct driver *driver;
    CUstream handle;
    struct stream *stream;
    int device;
};

static CUresult run_graph(const struct place *place, const struct node_set *order);

static CUresult run_child(const struct place *place, const struct graph *graph)
{
    struct node_set order = {0};
    CUresult result = graph_order(graph, &order);
    if (result == CUDA_SUCCESS)
        result = run_graph(place, &order);
    node_set_clear(&order);
    return result;
}

static CUresult run_chosen(const struct place *place, const struct conditional_work *work)
{
    const struct graph *body = conditional_chosen(work);
    return body != NULL ? run_child(place, body) : CUDA_SUCCESS;
}

static struct sim_task kernel_task(const struct place *place, const struct kernel_work *kernel)
{
    const struct kernel_params_v1 *params = &kernel->params.v1;
    CUlaunchConfig shape = {.gridDimX = params->grid_x,
                            .gridDimY = params->grid_y,
                            .gridDimZ = params->grid_z,
                            .blockDimX = params->block_x,
                            .blockDimY = params->block_y,
                            .blockDimZ = params->block_z};
    return task_kernel(place->driver, place->device, &shape, kernel->duration_ns);
}

static struct sim_task wait_task(const struct place *place, const struct event *event)
{
    return event->recorded && event->page == NULL && event->device == place->device
               ? queue_waiting_for(event)
               : NO_WORK;
}

/* What a node does that is no work for the device, and what is. */
static CUresult perform(const struct place *place, struct node *node, struct sim_task *out)
{
    switch (node->type) {
    case NODE_KERNEL:
        *out = kernel_task(place, &node->kernel);
        return CUDA_SUCCESS;
    case NODE_COPY:
        host_calls_wait(place->driver, place->stream, place->device);
        return copy_run(place->driver, place->device, &node->copy, out);
    case NODE_FILL:
        host_calls_wait(place->driver, place->stream, place->device);
        return fill_run(place->driver, place->device, &node->fill, out);
    case NODE_HOST:
        return host_call_submit(place->driver, place->stream, place->device, node->host.call,
                                node->host.data);
    case NODE_WAIT:
        *out = wait_task(place, node->event);
        return CUDA_SUCCESS;
    case NODE_ALLOC:
        block_allocate(place->driver, node->block);
        return CUDA_SUCCESS;
    case NODE_FREE:
        return block_free(place->driver, node->block);
    default:
        return CUDA_SUCCESS;
    }
}

static CUresult run(const struct place *place, struct node *node)
{
    struct sim_task task = NO_WORK;
    if (node->type == NODE_CHILD)
        return run_child(place, node->child);
    if (node->type == NODE_CONDITIONAL)
        return run_chosen(place, &node->conditional);
    if (node->type == NODE_MEMORY)
        return stream_memory_run(place->driver, place->stream, place->device, &node->memory);
    CUresult result = perform(place, node, &task);
    if (result == CUDA_SUCCESS)
        queue_submit(place->driver, place->stream, place->device, task,
                     node->type == NODE_RECORD ? node->event : NULL);
    return result;
}

static CUresult run_graph(const struct place *place, const struct node_set *order)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < order->count && result == CUDA_SUCCESS; i++)
        if (!order->items[i]->disabled)
            result = run(place, order->items[i]);
    return result;
}

static CUresult begin(CUgraphExec exec, CUstream handle, struct place *place)
{
    CUresult result = driver_get(&place->driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_exec(exec))
        return CUDA_ERROR_INVALID_VALUE;
    place->handle = handle;
    return queue_stream(place->driver, handle, &place->stream, &place->device);
}

API CUresult cuGraphUpload(CUgraphExec exec, CUstream handle)
{
    struct place place;
    CUresult result = begin(exec, handle, &place);
    if (result == CUDA_SUCCESS)
        result = graph_memory_map(place.driver, exec, place.stream, place.device);
    return result;
}
ALSO(cuGraphUpload, cuGraphUpload_ptsz);

static bool allocates(const struct graph *graph)
{
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        if (node->type == NODE_ALLOC || (node->type == NODE_CHILD && allocates(node->child)))
            return true;
    }
    return false;
}

static CUresult launch_alone(const struct place *place, struct exec *exec)
{
    CUresult result = graph_memory_restart(place->driver, exec);
    if (result == CUDA_SUCCESS)
        result = graph_memory_map(place->driver, exec, place->stream, place->device);
    if (result == CUDA_SUCCESS)
        result = run_graph(place, &exec->order);
    if (result == CUDA_SUCCESS)
        graph_memory_busy(place->driver, exec, place->stream, place->device);
    return result;
}

/* From what it maps until it has allocated it, no other launch counts on that memory and no trim
 * takes it. */
static CUresult launch(const struct place *place, struct exec *exec)
{
    bool memory = allocates(exec->graph);
    if (memory)
        pthread_mutex_lock(&place->driver->launching);
    CUresult result = launch_alone(place, exec);
    if (memory)
        pthread_mutex_unlock(&place->driver->launching);
    return result;
}

API CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
    struct place place;
    CUresult result = begin(exec, handle, &place);
    if (result == CUDA_SUCCESS && capture_has(place.stream))
        return capture_graph(place.driver, place.stream, exec->graph);
    return result == CUDA_SUCCESS ? launch(&place, exec) : result;
}
ALSO(cuGraphLaunch, cuGraphLaunch_ptsz);
