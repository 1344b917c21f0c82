/* The processes of a workload. The first is the program itself; the others are forked before the
 * driver is loaded, and each makes a context of its own. What each has done it leaves in memory
 * that all share. All waiting is sleeping: nobody blocks in a pipe or in waitpid. */
#ifndef PROGRAMS_CUDA_WORK_CREW_H
#define PROGRAMS_CUDA_WORK_CREW_H

#include "phase.h"
#include "tally.h"
#include <stdatomic.h>

/* Processes of a phase that do all-reduces. begun: kernels of them, counted by the GPUs. rounds:
 * how many there will be; 0: not known yet. communicator: which one it is. */
struct meeting {
    _Alignas(4096) _Atomic uint64_t begun;
    _Atomic uint64_t rounds;
    uint32_t communicator;
};

/* ready: processes that may begin. begin: when they all do, once known. */
struct crew {
    unsigned size;
    _Atomic unsigned ready;
    _Atomic uint64_t begin;
    struct meeting meetings[PHASES_AT_MOST];
    struct tally tallies[PROCESSES_AT_MOST][PHASES_AT_MOST];
};

/* Fork. Returns this process's number; 0 is the first. */
unsigned crew_start(struct crew **crew, unsigned size);

/* Wait until all are ready. Returns when they begin: at `start` if that is still to come. */
uint64_t crew_meet(struct crew *crew, unsigned member, uint64_t start);

/* The first only: wait until the others have ended. A member's failure ends the program. */
void crew_finish(struct crew *crew);

#endif
