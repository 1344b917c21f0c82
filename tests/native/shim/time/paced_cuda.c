/* A driver whose GPU ends work when the test says so: for what the shim does about work in flight.
 *
 * Two devices, eight streams. A launch is counted in its stream, an event stands behind all that
 * was launched there before it. Work is done at once, but in a stream that is held: there when it
 * is let go, or when something is launched in the stream that it waits for.
 */
#include "cuda_types.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

enum { STREAMS = 8 };

static struct stream {
    atomic_ulong launched;
    atomic_ulong done; /* while held */
    atomic_bool held;
    atomic_int waits_for;   /* a stream; 0: for none */
    atomic_bool unrecorded; /* it refuses events */
} streams[STREAMS];

static atomic_int device;
static atomic_int refused; /* what a launch answers */
static atomic_int recorded; /* events, so far */

struct event {
    struct stream *stream;
    unsigned long place;
};

static struct stream *stream_of(CUstream handle)
{
    return &streams[(uintptr_t)handle % STREAMS];
}

void pace_device(int current)
{
    device = current;
}

void pace_refuse(int result)
{
    refused = result;
}

void pace_hold(CUstream handle, int waits_for)
{
    struct stream *stream = stream_of(handle);
    stream->done = stream->launched;
    stream->waits_for = waits_for;
    stream->held = true;
}

void pace_let_go(CUstream handle)
{
    stream_of(handle)->held = false;
}

void pace_refuse_events(CUstream handle)
{
    stream_of(handle)->unrecorded = true;
}

int pace_recorded(void)
{
    return recorded;
}

int pace_held(CUstream handle)
{
    return stream_of(handle)->held;
}

CUresult cuInit(unsigned int flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *out)
{
    *out = device;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = (CUcontext)&streams[device];
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice ordinal)
{
    for (int index = 0; index < 16; index++)
        uuid->bytes[index] = (unsigned char)(index + 16 * ordinal);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared, CUstream stream,
                        void **parameters, void **extra)
{
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y;
    (void)block_z, (void)shared, (void)parameters, (void)extra;
    if (refused != CUDA_SUCCESS)
        return (CUresult)refused;
    stream_of(stream)->launched++;
    for (int index = 0; index < STREAMS; index++)
        if (streams[index].waits_for != 0 &&
            &streams[streams[index].waits_for] == stream_of(stream))
            streams[index].held = false;
    return CUDA_SUCCESS;
}

/* A module is the only function in it, whatever its name. */
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    (void)name;
    *function = (CUfunction)module;
    return CUDA_SUCCESS;
}

/* A kernel is known as its function plus a half, a graph as the only function in it. */
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    (void)name;
    *kernel = (CUkernel)((uintptr_t)library + 2048);
    return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    *function = (CUfunction)((uintptr_t)kernel - 2048);
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    (void)flags;
    *exec = (CUgraphExec)((uintptr_t)graph + 1024);
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    *count = 1;
    if (nodes != NULL)
        *nodes = (CUgraphNode)graph;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, int *type)
{
    (void)node;
    *type = CU_GRAPH_NODE_TYPE_KERNEL;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, void *params)
{
    *(CUfunction *)params = (CUfunction)node;
    return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    return cuLaunchKernel((CUfunction)exec, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    (void)flags;
    *event = (CUevent)calloc(1, sizeof(struct event));
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    free(event);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent handle, CUstream stream)
{
    struct event *event = (struct event *)handle;
    if (stream_of(stream)->unrecorded)
        return CUDA_ERROR_INVALID_HANDLE;
    recorded++;
    event->stream = stream_of(stream);
    event->place = event->stream->launched;
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent handle)
{
    const struct event *event = (const struct event *)handle;
    bool done = !event->stream->held || event->place <= event->stream->done;
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    (void)stream;
    return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    (void)mode;
    return CUDA_SUCCESS;
}
