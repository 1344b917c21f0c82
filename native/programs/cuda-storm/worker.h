/* One process of the storm: takes and gives back at random until it is told to stop, or killed. */
#ifndef PROGRAMS_CUDA_STORM_WORKER_H
#define PROGRAMS_CUDA_STORM_WORKER_H

#include "claims.h"

struct worker {
    struct claims *claims;
    int shared; /* the descriptor that `claims` is mapped from: an exec finds it again */
    int row;
    int heir; /* the row of a process that it forks after it has begun; -1 for none */
    int threads;
    int processes;
    unsigned seed;
    const char *program; /* to exec */
};

/* None of these returns. */
_Noreturn void worker_run(struct worker worker);

/* The same in a new program, which calls worker_resume() with its words. */
_Noreturn void worker_exec(const struct worker *worker);
_Noreturn void worker_resume(char **words);

#endif
