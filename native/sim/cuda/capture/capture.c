/* What becomes of calls on streams that are captured. */
#include "cuda/capture/capture.h"
#include <stdlib.h>

/* Replace what the stream's next node comes after by one node. */
static CUresult advance(struct stream *stream, struct node *node)
{
    stream->after->count = 0;
    return node_set_add(stream->after, node) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult usable(const struct stream *stream)
{
    return stream->capture->invalid ? (CUresult)ERROR_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

static CUresult add(struct driver *driver, struct stream *stream, const struct node *prototype)
{
    struct capture *capture = stream->capture;
    struct node *node;
    CUresult result = usable(stream);
    if (result == CUDA_SUCCESS)
        result = graph_add(driver, capture->graph, prototype, stream->after->items,
                           stream->after->count, &node);
    if (result != CUDA_SUCCESS)
        return result;
    if (node->type == NODE_FREE && node->block->graph == capture->graph->number)
        node->block->freed_by = node;
    return advance(stream, node);
}

CUresult capture_node(struct driver *driver, struct stream *stream, const struct node *prototype)
{
    pthread_mutex_lock(&driver->captures_mutex);
    CUresult result = add(driver, stream, prototype);
    pthread_mutex_unlock(&driver->captures_mutex);
    return result;
}

CUresult capture_graph(struct driver *driver, struct stream *stream, const struct graph *graph)
{
    if (graph_has_memory(graph))
        return CUDA_ERROR_INVALID_VALUE; /* it cannot be copied into another */
    struct node node = {.type = NODE_CHILD, .child = graph_copy(driver, graph)};
    return node.child != NULL ? capture_node(driver, stream, &node) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult capture_copy(struct driver *driver, struct stream *stream, CUdeviceptr to,
                      CUdeviceptr from, size_t bytes)
{
    enum { UNIFIED = 4 };
    struct node node = {.type = NODE_COPY,
                        .copy = {.from = {.memory = UNIFIED, .device = from},
                                 .to = {.memory = UNIFIED, .device = to},
                                 .width_bytes = bytes,
                                 .height = 1,
                                 .depth = 1}};
    return capture_node(driver, stream, &node);
}

CUresult capture_alloc(struct driver *driver, struct stream *stream, int device, size_t bytes,
                       CUdeviceptr *out)
{
    struct node node;
    struct alloc_params params = {.pool = {.allocation = 1, .location = {.type = 1, .id = device}},
                                  .bytes = bytes};
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->captures_mutex);
    CUresult result = usable(stream);
    if (result == CUDA_SUCCESS)
        result = node_of_alloc(driver, stream->capture->graph, stream->after->items,
                               stream->after->count, &params, &node);
    if (result == CUDA_SUCCESS)
        result = add(driver, stream, &node);
    pthread_mutex_unlock(&driver->captures_mutex);
    if (result == CUDA_SUCCESS)
        *out = node.alloc.address;
    return result;
}

CUresult capture_free(struct driver *driver, struct stream *stream, CUdeviceptr address)
{
    struct node node;
    pthread_mutex_lock(&driver->captures_mutex);
    CUresult result = usable(stream);
    if (result == CUDA_SUCCESS)
        result = node_of_free(driver, stream->capture->graph, address, &node);
    if (result == CUDA_SUCCESS)
        result = add(driver, stream, &node);
    pthread_mutex_unlock(&driver->captures_mutex);
    return result;
}

void capture_forget(struct event *event)
{
    if (event->after != NULL)
        node_set_clear(event->after);
    free(event->after);
    event->after = NULL;
    event->capture = 0;
}

static CUresult unite(struct node_set *set, const struct node_set *more)
{
    for (size_t i = 0; i < more->count; i++)
        if (!node_set_has(set, more->items[i]) && node_set_add(set, more->items[i]) != 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

CUresult capture_record(struct driver *driver, struct stream *stream, struct event *event)
{
    pthread_mutex_lock(&driver->captures_mutex);
    capture_forget(event);
    event->after = calloc(1, sizeof *event->after);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (event->after != NULL)
        result = unite(event->after, stream->after);
    if (result == CUDA_SUCCESS)
        result = usable(stream);
    event->capture = stream->capture->number;
    pthread_mutex_unlock(&driver->captures_mutex);
    return result;
}

static struct capture *by_number(const struct driver *driver, uint64_t number)
{
    struct capture *capture = driver->captures;
    while (capture != NULL && capture->number != number)
        capture = capture->next;
    return capture;
}

static CUresult join(struct stream *stream, struct capture *capture)
{
    stream->after = calloc(1, sizeof *stream->after);
    if (stream->after == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->capture = capture;
    stream->also_captured = capture->streams;
    capture->streams = stream;
    return CUDA_SUCCESS;
}

static CUresult fail(struct capture *capture, int error)
{
    capture->invalid = true;
    return (CUresult)error;
}

static CUresult wait_for(const struct driver *driver, struct stream *stream,
                         const struct event *event)
{
    struct capture *capture = by_number(driver, event->capture);
    if (capture == NULL) /* recorded outside of every capture there is now */
        return stream->capture != NULL ? fail(stream->capture, ERROR_CAPTURE_ISOLATION)
                                       : (CUresult)ERROR_CAPTURED_EVENT;
    if (stream->capture != NULL && stream->capture != capture) {
        fail(stream->capture, ERROR_CAPTURE_MERGE);
        return fail(capture, ERROR_CAPTURE_MERGE);
    }
    if (capture->invalid)
        return (CUresult)ERROR_CAPTURE_INVALIDATED;
    CUresult result = stream->capture == NULL ? join(stream, capture) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? unite(stream->after, event->after) : result;
}

CUresult capture_wait(struct driver *driver, struct stream *stream, struct event *event)
{
    if (stream == NULL) /* a default stream cannot join */
        return (CUresult)ERROR_CAPTURE_IMPLICIT;
    pthread_mutex_lock(&driver->captures_mutex);
    CUresult result = wait_for(driver, stream, event);
    pthread_mutex_unlock(&driver->captures_mutex);
    return result;
}
