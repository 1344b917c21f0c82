/* What is launched: kernels, fills and copies, one by one or as a graph. */
#include "job.h"
#include "kernel.h"
#include "moment.h"

/* A call that gave the GPU work has returned. */
static struct load launched(struct job *job, int code, struct load load)
{
    driver_check(code, "launching");
    if (job->tally == NULL)
        return load;
    uint64_t now = moment_now();
    spread_add(&job->tally->gaps, now - job->last);
    job->last = now;
    job->tally->launches++;
    load_add(&job->tally->load, load);
    return load;
}

static struct load next_kernel(struct job *job, void *stream)
{
    uint64_t length = job->phase->kernels[job->turn++ % job->phase->kernel_count];
    int code = kernel_launch(job->cuda, job->phase, job->function, length, stream);
    return launched(job, code, (struct load){.kernels = 1, .gpu_ns = length});
}

static struct load fill(struct job *job, void *stream)
{
    uint64_t bytes = job->phase->fill;
    int code = job->cuda->cuMemsetD8Async(job->filled, 0x5a, bytes, stream);
    return launched(job, code, (struct load){.bytes = bytes});
}

static int copy_bytes(const struct job *job, uint64_t bytes, void *stream)
{
    switch (job->phase->direction) {
    case TO_DEVICE:
        return job->cuda->cuMemcpyHtoDAsync(job->copied[0], job->host, bytes, stream);
    case TO_HOST:
        return job->cuda->cuMemcpyDtoHAsync(job->host, job->copied[0], bytes, stream);
    default:
        return job->cuda->cuMemcpyDtoDAsync(job->copied[1], job->copied[0], bytes, stream);
    }
}

static struct load copy(struct job *job, void *stream)
{
    uint64_t bytes = job->phase->copy;
    return launched(job, copy_bytes(job, bytes, stream), (struct load){.bytes = bytes});
}

struct load job_step(struct job *job, void *stream)
{
    struct load load = {0};
    if (job->phase->kernel_count > 0)
        load_add(&load, next_kernel(job, stream));
    if (job->phase->fill > 0)
        load_add(&load, fill(job, stream));
    if (job->phase->copy > 0)
        load_add(&load, copy(job, stream));
    return load;
}

struct load job_launch(struct job *job)
{
    unsigned lane = (unsigned)(job->lane++ % job->lanes);
    void *stream = job->streams[lane];
    if (job->phase->pattern != GRAPH)
        return job_step(job, stream);
    return launched(job, job->cuda->cuGraphLaunch(job->graphs[lane], stream), job->graph);
}

void job_wait(const struct job *job)
{
    for (unsigned i = 0; i < job->lanes; i++)
        driver_check(job->cuda->cuStreamSynchronize(job->streams[i]), "waiting for a stream");
}
