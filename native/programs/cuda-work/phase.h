/* What a workload does, as its text says: phases, one after another. */
#ifndef PROGRAMS_CUDA_WORK_PHASE_H
#define PROGRAMS_CUDA_WORK_PHASE_H

#include <stdint.h>

enum {
    PHASES_AT_MOST = 32,
    KERNELS_AT_MOST = 16,
    STREAMS_AT_MOST = 128,
    PROCESSES_AT_MOST = 64,
    GPUS_AT_MOST = 16,
    TEXT_AT_MOST = 16384,
};

enum pattern { ASYNC, SYNC, BURST, POISSON, GRAPH, ALLREDUCE };
enum direction { TO_DEVICE, TO_HOST, ON_DEVICE };

/* Sizes in bytes, times in nanoseconds; 0: not given, where nothing else is said. */
struct phase {
    const char *text; /* its own words, separated by single blanks */
    unsigned given;   /* one bit per key */
    uint64_t kernels[KERNELS_AT_MOST];
    uint64_t kernel_count;
    uint64_t pattern;
    uint64_t count;
    uint64_t every;
    uint64_t ahead;
    uint64_t host;    /* time that the program spends itself after each wait */
    uint64_t seed;    /* of the arrivals */
    uint64_t streams; /* 0: the default stream */
    uint64_t processes;
    uint64_t blocks, threads;
    uint64_t gpus, reduce; /* of an all-reduce: GPUs of each process, time of the exchange */
    uint64_t fill;
    uint64_t copy;
    uint64_t direction;
    uint64_t lasts;
    uint64_t rest;
    uint64_t sync, cooperative, extended, per_thread; /* 0 or 1 */
};

struct workload {
    struct phase phases[PHASES_AT_MOST];
    unsigned count;
    char words[TEXT_AT_MOST]; /* what the phases' texts point into */
};

/* Understand a text, or the file of `@FILE`. 0, or exit status 2 after one line on stderr. */
int workload_read(struct workload *workload, const char *text);

/* How many processes its largest phase has. */
unsigned workload_processes(const struct workload *workload);

#endif
