#include "job.h"
#include "kernel.h"

static device_address allocate(const struct job *job, uint64_t bytes)
{
    device_address address;
    driver_check(job->cuda->cuMemAlloc(&address, bytes), "allocating");
    return address;
}

static void take_memory(struct job *job)
{
    const struct phase *phase = job->phase;
    if (phase->fill > 0)
        job->filled = allocate(job, phase->fill);
    if (phase->copy == 0)
        return;
    job->copied[0] = allocate(job, phase->copy);
    if (phase->direction == ON_DEVICE)
        job->copied[1] = allocate(job, phase->copy);
    else
        driver_check(job->cuda->cuMemHostAlloc(&job->host, phase->copy, 0),
                     "allocating pinned host memory");
}

/* Without streams=, everything goes to the default stream. */
static void make_streams(struct job *job)
{
    job->lanes = job->phase->streams > 0 ? (unsigned)job->phase->streams : 1;
    for (unsigned i = 0; i < job->phase->streams; i++)
        driver_check(job->cuda->cuStreamCreate(&job->streams[i], STREAM_NON_BLOCKING),
                     "making a stream");
    for (unsigned i = 0; i < 2 * job->lanes; i++)
        driver_check(job->cuda->cuEventCreate(&job->marks[i % 2][i / 2], 0), "making an event");
}

/* `count` steps, captured on a stream of their own. */
static void *make_graph(struct job *job)
{
    void *stream, *graph, *executable;
    const struct driver *cuda = job->cuda;
    driver_check(cuda->cuStreamCreate(&stream, STREAM_NON_BLOCKING), "making a stream");
    driver_check(cuda->cuStreamBeginCapture(stream, CAPTURE_RELAXED), "capturing a graph");
    job->turn = 0;
    job->graph = (struct load){0};
    for (uint64_t i = 0; i < job->phase->count; i++)
        load_add(&job->graph, job_step(job, stream));
    driver_check(cuda->cuStreamEndCapture(stream, &graph), "ending the capture");
    driver_check(cuda->cuGraphInstantiateWithFlags(&executable, graph, 0), "making a graph");
    driver_check(cuda->cuGraphDestroy(graph), "destroying what the graph was made from");
    driver_check(cuda->cuStreamDestroy(stream), "destroying the stream of the capture");
    return executable;
}

void job_prepare(struct job *job, const struct phase *phase)
{
    *job = (struct job){.phase = phase, .cuda = driver_functions(phase->per_thread != 0)};
    if (phase->rest > 0)
        return;
    job->function = kernel_load(job->cuda);
    take_memory(job);
    make_streams(job);
    for (unsigned i = 0; phase->pattern == GRAPH && i < job->lanes; i++)
        job->graphs[i] = make_graph(job);
}
