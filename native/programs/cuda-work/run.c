/* When it is launched: as far ahead of the GPU as the phase says, after each end, or when due. */
#include "job.h"
#include "moment.h"
#include <math.h>

/* For the pace alone: how long the GPU is at it. A fill or copy is taken to run at 16 GB/s, or it
 * would be thought to take no time. */
static uint64_t length_of(struct load load)
{
    return load.gpu_ns + load.bytes / 16;
}

/* asked: of the batch that is being launched. count: of the batches before it. */
struct batch {
    uint64_t asked, count;
};

static void mark(struct job *job, uint64_t batch)
{
    for (unsigned i = 0; i < job->lanes; i++)
        driver_check(job->cuda->cuEventRecord(job->marks[batch % 2][i], job->streams[i]),
                     "recording an event");
}

static void wait_for(struct job *job, uint64_t batch)
{
    for (unsigned i = 0; i < job->lanes; i++)
        driver_check(job->cuda->cuEventSynchronize(job->marks[batch % 2][i]),
                     "waiting for an event");
}

static void spend_host_time(const struct job *job)
{
    if (job->phase->host > 0)
        moment_sleep(job->phase->host);
}

/* At the end of each batch: wait for the end of the one before. */
static void keep_pace(struct job *job, struct batch *batch, struct load load)
{
    batch->asked += length_of(load);
    if (batch->asked < job->phase->ahead / 2)
        return;
    mark(job, batch->count);
    if (batch->count > 0)
        wait_for(job, batch->count - 1);
    spend_host_time(job);
    *batch = (struct batch){.count = batch->count + 1};
}

static void run_ahead(struct job *job, uint64_t end)
{
    struct batch batch = {0};
    while (moment_now() < end)
        keep_pace(job, &batch, job_launch(job));
}

/* All that was launched has ended; it was due at `due`. */
static void settle(struct job *job, uint64_t due)
{
    job_wait(job);
    spread_add(&job->tally->delays, moment_now() - due);
}

static void run_in_step(struct job *job, uint64_t end)
{
    for (uint64_t start; (start = moment_now()) < end;) {
        job_launch(job);
        settle(job, start);
        spend_host_time(job);
    }
}

/* The first of the times that are `every` apart that is not over yet. */
static uint64_t next_due(uint64_t begin, uint64_t every, uint64_t now)
{
    return now <= begin ? begin : begin + (now - begin + every - 1) / every * every;
}

static void run_bursts(struct job *job, uint64_t begin, uint64_t end)
{
    const struct phase *phase = job->phase;
    uint64_t each = phase->pattern == GRAPH ? 1 : phase->count;
    for (uint64_t due; (due = next_due(begin, phase->every, moment_now())) < end;) {
        moment_sleep_until(due);
        job->last = moment_now();
        for (uint64_t i = 0; i < each; i++)
            job_launch(job);
        settle(job, due);
    }
}

/* Uniform in (0, 1): splitmix64, whose sequence is the same everywhere. */
static double next_random(uint64_t *state)
{
    uint64_t mixed = *state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return ((double)((mixed ^ mixed >> 31) >> 12) + 0.5) * 0x1p-52;
}

static void serve_request(struct job *job)
{
    for (uint64_t i = 0; i < job->phase->count; i++) {
        job_launch(job);
        if (job->phase->sync) {
            job_wait(job);
            spend_host_time(job);
        }
    }
}

/* Requests arrive whether or not the ones before them have ended, and are served in order; a delay
 * is counted from the arrival. */
static void run_arrivals(struct job *job, uint64_t begin, uint64_t end)
{
    uint64_t random = job->phase->seed;
    double arrival = (double)begin;
    for (;;) {
        arrival -= (double)job->phase->every * log(next_random(&random));
        if (arrival >= (double)end)
            return;
        moment_sleep_until((uint64_t)arrival);
        job->last = moment_now();
        serve_request(job);
        settle(job, (uint64_t)arrival);
    }
}

void job_run(struct job *job, struct tally *tally, uint64_t begin, uint64_t end)
{
    job->tally = tally;
    moment_sleep_until(begin);
    job->last = tally->begin = moment_now();
    if (job->phase->rest > 0)
        moment_sleep_until(end);
    else if (job->phase->pattern == POISSON)
        run_arrivals(job, begin, end);
    else if (job->phase->every > 0)
        run_bursts(job, begin, end);
    else if (job->phase->pattern == SYNC || job->phase->sync)
        run_in_step(job, end);
    else
        run_ahead(job, end);
    job_wait(job);
    tally->end = moment_now();
}
