/* Stream capture: calls that become nodes of a graph instead of work on the device.
 *
 * A capture begins on one stream; others join it by waiting for an event recorded in it, and must
 * come back the same way. A stream remembers which nodes its next one comes after. A call that a
 * capture cannot have makes it invalid; ending it then says so. driver->captures_mutex guards all.
 *
 * Default streams cannot be captured here, neither the legacy one (as documented) nor a thread's.
 */
#ifndef SIM_CUDA_CAPTURE_CAPTURE_H
#define SIM_CUDA_CAPTURE_CAPTURE_H

#include "cuda/graph/graph.h"
#include "cuda/stream/queue.h"

struct capture {
    uint64_t number;
    struct graph *graph;
    bool borrowed; /* the graph is the program's */
    bool invalid;
    int mode;
    const void *thread; /* who began it */
    struct stream *origin;
    struct stream *streams; /* all in it */
    struct capture *next;
};

/* Is the stream part of a capture? NULL: a default stream, which is not. */
static inline bool capture_has(const struct stream *stream)
{
    return stream != NULL && stream->capture != NULL;
}

/* What tells the calling thread from others. */
const void *capture_thread(void);

/* Add a node like `prototype` after what the stream has captured. Takes over what that holds. */
CUresult capture_node(struct driver *driver, struct stream *stream, const struct node *prototype);

CUresult capture_graph(struct driver *driver, struct stream *stream, const struct graph *graph);
CUresult capture_copy(struct driver *driver, struct stream *stream, CUdeviceptr to,
                      CUdeviceptr from, size_t bytes);
CUresult capture_alloc(struct driver *driver, struct stream *stream, int device, size_t bytes,
                       CUdeviceptr *out);
CUresult capture_free(struct driver *driver, struct stream *stream, CUdeviceptr address);

/* An event is recorded, and waited for. The latter also where only the event is in a capture. */
CUresult capture_record(struct driver *driver, struct stream *stream, struct event *event);
CUresult capture_wait(struct driver *driver, struct stream *stream, struct event *event);

/* Forget what an event was recorded after in a capture. */
void capture_forget(struct event *event);

/* A call that waits for, or asks after, a stream: an error if that is in a capture, which then is
 * invalid. With NULL: after the legacy stream of a device, which waits for others. */
CUresult capture_asked(struct driver *driver, struct stream *stream, int device);

/* A call that waits for all of a device: none of it may be captured. */
CUresult capture_any(struct driver *driver, int device);

/* A call that is unsafe while there is a capture, for it is not in a stream's order and so not in
 * the graph: an error that makes those captures invalid that the modes forbid it in. Calls that are
 * known to be so: plain and managed allocation (cuThreadExchangeStreamCaptureMode's documentation
 * names it), freeing, pinned and registered host memory (PyTorch's allocators make them in the
 * relaxed mode), queries of events (its watchdog broke captures of other threads), a pool's
 * attributes and trimming (libcu++ of CUDA 13.4). Others may be. */
CUresult capture_unsafe(struct driver *driver);

#endif
