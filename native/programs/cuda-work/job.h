/* A phase made ready for the GPU by one process: streams, graphs, memory, events. All that takes
 * time is done before the first launch. */
#ifndef PROGRAMS_CUDA_WORK_JOB_H
#define PROGRAMS_CUDA_WORK_JOB_H

#include "driver.h"
#include "phase.h"
#include "tally.h"

/* lanes: streams in use. marks: the ends of the last two batches on each.
 * turn: of the kernels; lane: the next stream's. graph: what one launch of a graph asks for.
 * last: when the last launch returned; before the first of a phase or burst, when it could begin.
 */
struct job {
    const struct phase *phase;
    const struct driver *cuda;
    struct tally *tally;
    void *function;
    unsigned lanes;
    void *streams[STREAMS_AT_MOST];
    void *graphs[STREAMS_AT_MOST];
    void *marks[2][STREAMS_AT_MOST];
    device_address filled, copied[2];
    void *host;
    uint64_t turn, lane, last;
    struct load graph;
};

/* The driver must be in use. */
void job_prepare(struct job *job, const struct phase *phase);

/* One step on a stream: the next kernel, the fill, the copy, as far as the phase has them. Without
 * a tally nothing is counted: the stream is being captured. */
struct load job_step(struct job *job, void *stream);

/* Launch a step, or a graph, on the next stream. */
struct load job_launch(struct job *job);

/* Wait for the end of all that was launched. */
void job_wait(const struct job *job);

/* Work from `begin` to `end` and wait for the end of it. */
void job_run(struct job *job, struct tally *tally, uint64_t begin, uint64_t end);

#endif
