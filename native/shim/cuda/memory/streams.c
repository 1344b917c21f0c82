#include "cuda/memory/streams.h"

#include "cuda/graph/memory.h"
#include "cuda/launch/capturing.h"
#include "cuda/pool/pool.h"

#include <string.h>
#include <time.h>

enum {
    PAUSE_NS = 50 * 1000,
    PAUSES = 20 * 1000, /* two seconds, on an idle machine: a stream may wait for this thread */
};

/* What a stream had been given when it was marked. event: NULL once it is done, or cannot be asked
 * about. */
struct mark {
    uint64_t stream;
    CUevent event;
    uint64_t opened;
    uint64_t launches;
};

/* The handle of a stream that this thread may use. */
static bool handle_of(uint64_t stream, CUstream *handle)
{
    bool own = stream == pool_stream_key(CU_STREAM_PER_THREAD);
    *handle = own ? CU_STREAM_PER_THREAD : (CUstream)(uintptr_t)stream;
    return own || *handle == CU_STREAM_LEGACY || (stream != GAP_ANY && stream % 2 == 0);
}

static CUevent record(CUstream handle)
{
    CUevent event = NULL;
    if (REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return NULL;
    if (REAL(cuEventRecord)(event, handle) == CUDA_SUCCESS)
        return event;
    REAL(cuEventDestroy_v2)(event);
    return NULL;
}

static struct mark mark(struct process *process, unsigned device, uint64_t stream)
{
    CUstream handle;
    struct mark mark = {.stream = stream,
                        .opened = pools_opened(&process->pools),
                        .launches = graph_launches(process, device, stream)};
    CUstreamCaptureMode mode = own_calls_begin();
    if (handle_of(stream, &handle) && !capture_is_on(process, handle))
        mark.event = record(handle);
    own_calls_end(mode);
    return mark;
}

/* Is it done, or not to be asked about? `last`: it is asked no more. */
static bool look(struct process *process, unsigned device, struct mark *mark, bool last)
{
    if (mark->event == NULL)
        return true;
    CUstreamCaptureMode mode = own_calls_begin();
    CUresult result = REAL(cuEventQuery)(mark->event);
    if (result != CUDA_ERROR_NOT_READY || last) {
        REAL(cuEventDestroy_v2)(mark->event);
        mark->event = NULL;
    }
    own_calls_end(mode);
    if (result == CUDA_SUCCESS) {
        pool_stream_done(process, device, mark->stream, mark->opened);
        graph_stream_done(process, device, mark->stream, mark->launches);
    }
    return mark->event == NULL;
}

static bool look_at_all(struct process *process, unsigned device, struct mark *marks, size_t count,
                        bool last)
{
    bool all = true;
    for (size_t at = 0; at < count; at++)
        all &= look(process, device, &marks[at], last);
    return all;
}

static size_t find(const struct stream_list *list, uint64_t stream)
{
    size_t at = 0;
    while (at < list->count && list->streams[at] != stream)
        at++;
    return at;
}

/* One that has no place is not waited for. */
void streams_note(struct process *process, uint64_t stream)
{
    struct stream_list *list = &process->streams;
    pthread_mutex_lock(&list->mutex);
    if (list->count < STREAMS_NOTED && find(list, stream) == list->count)
        list->streams[list->count++] = stream;
    pthread_mutex_unlock(&list->mutex);
}

static size_t noted(struct process *process, uint64_t *streams)
{
    pthread_mutex_lock(&process->streams.mutex);
    size_t count = process->streams.count;
    memcpy(streams, process->streams.streams, count * sizeof *streams);
    pthread_mutex_unlock(&process->streams.mutex);
    return count;
}

bool streams_wait(struct process *process, unsigned device)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    uint64_t streams[STREAMS_NOTED];
    struct mark marks[STREAMS_NOTED];
    if (!pools_known(&process->pools) && !graph_memory_held(process, device))
        return false;
    size_t count = noted(process, streams);
    for (size_t at = 0; at < count; at++)
        marks[at] = mark(process, device, streams[at]);
    for (int turn = 0; !look_at_all(process, device, marks, count, turn == PAUSES); turn++)
        nanosleep(&pause, NULL);
    return true;
}

/* Forget one, GAP_ANY: all. Was it noted? */
static bool forget(struct process *process, uint64_t stream)
{
    struct stream_list *list = &process->streams;
    pthread_mutex_lock(&list->mutex);
    size_t at = find(list, stream);
    bool known = at < list->count;
    if (known)
        list->streams[at] = list->streams[--list->count];
    if (stream == GAP_ANY)
        list->count = 0;
    pthread_mutex_unlock(&list->mutex);
    return known;
}

static void left(struct process *process, uint64_t stream)
{
    pools_left(&process->pools, stream);
    for (unsigned device = 0; device < VCUDA_DEVICES; device++)
        graph_stream_left(process, device, stream);
}

/* Before it is destroyed: later its handle may be another's. */
static void leave(CUstream handle)
{
    struct process *process = process_limited();
    uint64_t stream = pool_stream_key(handle);
    int device;
    if (process != NULL)
        turn_stream_goes(process, handle);
    if (process == NULL || !forget(process, stream))
        return;
    if (process_current(process, &device) == CUDA_SUCCESS && device >= 0) {
        struct mark now = mark(process, (unsigned)device, stream);
        look(process, (unsigned)device, &now, true);
    }
    left(process, stream);
}

CUresult cuStreamDestroy(CUstream stream)
{
    leave(stream);
    return REAL(cuStreamDestroy)(stream);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    leave(stream);
    return REAL(cuStreamDestroy_v2)(stream);
}

void streams_forget(struct process *process)
{
    forget(process, GAP_ANY);
    left(process, GAP_ANY);
}
