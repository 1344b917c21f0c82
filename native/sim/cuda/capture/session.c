/* Captures begun, asked after and ended. */
#include "cuda/capture/capture.h"
#include <stdlib.h>

/* The driver and a stream; for functions that only streams made by the program can have. */
static CUresult found(CUstream handle, struct driver **driver, struct stream **stream)
{
    int device;
    return queue_find(handle, driver, stream, &device);
}

static CUresult begin(struct driver *driver, struct stream *stream, struct graph *graph, int mode)
{
    struct capture *capture = calloc(1, sizeof *capture);
    struct node_set *after = calloc(1, sizeof *after);
    struct graph *own = graph != NULL ? graph : graph_new(driver);
    if (capture == NULL || after == NULL || own == NULL) {
        free(capture);
        free(after);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *capture = (struct capture){.number = driver_number(driver),
                                .graph = own,
                                .borrowed = graph != NULL,
                                .mode = mode,
                                .thread = capture_thread(),
                                .origin = stream,
                                .streams = stream,
                                .next = driver->captures};
    driver->captures = capture;
    stream->capture = capture;
    stream->after = after;
    stream->also_captured = NULL;
    return CUDA_SUCCESS;
}

static CUresult begin_on(CUstream handle, struct graph *graph, CUgraphNode const *needs,
                         size_t count, int mode)
{
    struct driver *driver;
    struct stream *stream;
    CUresult result = found(handle, &driver, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (mode < MODE_GLOBAL || mode > MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream == NULL)
        return (CUresult)ERROR_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&driver->captures_mutex);
    result = stream->capture != NULL
                 ? (CUresult)(stream->capture->invalid = true, CUDA_ERROR_INVALID_VALUE)
                 : begin(driver, stream, graph, mode);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        if (node_set_add(stream->after, needs[i]) != 0)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&driver->captures_mutex);
    return result;
}

API CUresult cuStreamBeginCapture_v2(CUstream handle, int mode)
{
    return begin_on(handle, NULL, NULL, 0, mode);
}
ALSO(cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz);

API CUresult cuStreamBeginCapture(CUstream handle)
{
    return begin_on(handle, NULL, NULL, 0, MODE_GLOBAL);
}
ALSO(cuStreamBeginCapture, cuStreamBeginCapture_ptsz);

API CUresult cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph, CUgraphNode const *needs,
                                         const struct edge_data *data, size_t count, int mode)
{
    (void)data;
    if (!is_graph(graph) || (count > 0 && needs == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!is_node(needs[i]) || needs[i]->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
    return begin_on(handle, graph, needs, count, mode);
}
ALSO(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz);

/* Have all streams come back to where it began? */
static bool joined(const struct capture *capture)
{
    for (struct stream *stream = capture->streams; stream != NULL; stream = stream->also_captured)
        for (size_t i = 0; stream != capture->origin && i < stream->after->count; i++)
            if (!node_set_follows(capture->origin->after, stream->after->items[i]))
                return false;
    return true;
}

static void dismiss(struct driver *driver, struct capture *capture)
{
    for (struct stream *next, *stream = capture->streams; stream != NULL; stream = next) {
        next = stream->also_captured;
        node_set_clear(stream->after);
        free(stream->after);
        free(stream->edges);
        stream->after = NULL;
        stream->edges = NULL;
        stream->capture = NULL;
        stream->also_captured = NULL;
    }
    struct capture **link = &driver->captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
}

static CUresult end(struct driver *driver, struct stream *stream, CUgraph *out)
{
    struct capture *capture = stream->capture;
    if (capture == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (capture->origin != stream) {
        capture->invalid = true;
        return (CUresult)ERROR_CAPTURE_UNMATCHED;
    }
    if (capture->mode != MODE_RELAXED && capture->thread != capture_thread())
        return (CUresult)ERROR_CAPTURE_WRONG_THREAD;
    CUresult result = CUDA_SUCCESS;
    if (capture->invalid)
        result = (CUresult)ERROR_CAPTURE_INVALIDATED;
    else if (!joined(capture))
        result = (CUresult)ERROR_CAPTURE_UNJOINED;
    dismiss(driver, capture);
    *out = result == CUDA_SUCCESS ? capture->graph : NULL;
    if (result != CUDA_SUCCESS && !capture->borrowed)
        graph_release(driver, capture->graph);
    free(capture);
    return result;
}

API CUresult cuStreamEndCapture(CUstream handle, CUgraph *out)
{
    struct driver *driver;
    struct stream *stream;
    CUresult result = found(handle, &driver, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || stream == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->captures_mutex);
    result = end(driver, stream, out);
    pthread_mutex_unlock(&driver->captures_mutex);
    return result;
}
ALSO(cuStreamEndCapture, cuStreamEndCapture_ptsz);

/* What is told of the edges to the stream's next node: that they are ordinary. */
static const struct edge_data *edges(struct stream *stream)
{
    free(stream->edges);
    stream->edges = calloc(stream->after->count + 1, sizeof *stream->edges);
    return stream->edges;
}

API CUresult cuStreamGetCaptureInfo_v3(CUstream handle, int *status, uint64_t *number,
                                       CUgraph *graph, CUgraphNode const **after,
                                       const struct edge_data **data, size_t *count)
{
    struct driver *driver;
    struct stream *stream;
    CUresult result = found(handle, &driver, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (status == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct capture *capture = capture_has(stream) ? stream->capture : NULL;
    *status = capture == NULL ? CAPTURE_NONE : capture->invalid ? CAPTURE_INVALID : CAPTURE_ACTIVE;
    if (*status != CAPTURE_ACTIVE)
        return CUDA_SUCCESS;
    if (number != NULL)
        *number = capture->number;
    if (graph != NULL)
        *graph = capture->graph;
    if (after != NULL)
        *after = stream->after->items;
    if (data != NULL && (*data = edges(stream)) == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (count != NULL)
        *count = stream->after->count;
    return CUDA_SUCCESS;
}
ALSO(cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz);

API CUresult cuStreamGetCaptureInfo_v2(CUstream handle, int *status, uint64_t *number,
                                       CUgraph *graph, CUgraphNode const **after, size_t *count)
{
    return cuStreamGetCaptureInfo_v3(handle, status, number, graph, after, NULL, count);
}
ALSO(cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz);

API CUresult cuStreamGetCaptureInfo(CUstream handle, int *status, uint64_t *number)
{
    return cuStreamGetCaptureInfo_v3(handle, status, number, NULL, NULL, NULL, NULL);
}
ALSO(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_ptsz);

API CUresult cuStreamIsCapturing(CUstream handle, int *status)
{
    return cuStreamGetCaptureInfo_v3(handle, status, NULL, NULL, NULL, NULL, NULL);
}
ALSO(cuStreamIsCapturing, cuStreamIsCapturing_ptsz);

API CUresult cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode *needs,
                                                  const struct edge_data *data, size_t count,
                                                  unsigned flags)
{
    enum { ADD, SET };
    struct driver *driver;
    struct stream *stream;
    CUresult result = found(handle, &driver, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    (void)data;
    if (flags > SET || (count > 0 && needs == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    if (!capture_has(stream))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->captures_mutex);
    if (flags == SET)
        stream->after->count = 0;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        if (!is_node(needs[i]) || needs[i]->graph != stream->capture->graph)
            result = CUDA_ERROR_INVALID_VALUE;
        else if (!node_set_has(stream->after, needs[i]) &&
                 node_set_add(stream->after, needs[i]) != 0)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&driver->captures_mutex);
    return result;
}
ALSO(cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies_v2_ptsz);

API CUresult cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode *needs, size_t count,
                                               unsigned flags)
{
    return cuStreamUpdateCaptureDependencies_v2(handle, needs, NULL, count, flags);
}
ALSO(cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies_ptsz);
