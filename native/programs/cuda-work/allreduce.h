/* Computing, and then an all-reduce over all GPUs of all processes, again and again: what training
 * on several GPUs does. One thread launches for all GPUs of a process, as it does between
 * ncclGroupStart and ncclGroupEnd.
 *
 * The kernel of an all-reduce counts itself in host memory that all share, spins until all of its
 * round have done so, and then for the time that the exchange is to take. It bears the name of one
 * of NCCL's, by which it may be known.
 */
#ifndef PROGRAMS_CUDA_WORK_ALLREDUCE_H
#define PROGRAMS_CUDA_WORK_ALLREDUCE_H

#include "crew.h"
#include "driver.h"

struct rank {
    void *context;
    void *compute;
    void *reduce;
    void *stream;
    void *marks[2]; /* the ends of the last two rounds */
};

/* One process's part. counter: where the kernels count themselves. */
struct allreduce {
    const struct phase *phase;
    const struct driver *cuda;
    struct meeting *meeting;
    unsigned member;
    uint64_t members; /* kernels of a round */
    device_address counter;
    struct rank ranks[GPUS_AT_MOST];
};

/* Phase number `phase` of the workload; its ranks are on GPU `device` and those that follow,
 * beginning again at 0 where there are no more. The driver must be in use. */
void allreduce_prepare(struct allreduce *self, struct crew *crew, unsigned member, uint64_t device,
                       const struct workload *workload, unsigned phase);

/* Rounds from `begin` on; none begins long after `end`. */
void allreduce_run(struct allreduce *self, struct tally *tally, uint64_t begin, uint64_t end);

#endif
