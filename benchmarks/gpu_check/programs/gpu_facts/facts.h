/* What the parts of gpu_facts have in common: calls of the driver, and lines of facts. */
#ifndef GPU_FACTS_H
#define GPU_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef unsigned long long u64;
typedef int (*call)();

#define MIB (1024.0 * 1024.0)

enum {
    ABSENT = -1,
    UNSEEN = -2, /* results of ours: what was waited for did not come; the stream ran empty */
    EMPTY = -3,
    NOT_READY = 600,
    NON_BLOCKING = 1,
    NO_TIMING = 2,
    ROWS = 256,
    SMS = 132, /* of an H100; others have fewer, or are full enough */
};

extern void *cuda, *ml, *context, *empty, *spin, *jumps, *handle;
extern int device, failed;

call find(void *library, const char *name);

/* Any function of the driver: its answer, ABSENT if there is none of that name. The last error
 * belongs to the fact that is printed next. */
#define CU(name, ...)                                                                              \
    ({                                                                                             \
        static call function_;                                                                     \
        if (function_ == NULL)                                                                     \
            function_ = find(cuda, #name);                                                         \
        int result_ = function_ != NULL ? function_(__VA_ARGS__) : ABSENT;                         \
        if (result_ != 0 && result_ != NOT_READY)                                                  \
            failed = result_;                                                                      \
        result_;                                                                                   \
    })

#define ML(name, ...)                                                                              \
    ({                                                                                             \
        call function_ = find(ml, #name);                                                          \
        function_ != NULL ? function_(__VA_ARGS__) : ABSENT;                                       \
    })

double now_us(void);

/* The end of a fact's line: with the error of a call that it needed. */
void end_fact(void);
void print_spread(const char *fact, double *values, int count, const char *unit);
void print_value(const char *fact, double value, const char *unit);

int run(void *function, int blocks, int threads, void *stream, void **parameters);

/* One thread that is busy for so many rounds. */
void run_spin(void *stream, u64 rounds);
void synchronize(void);
void *new_event(unsigned flags);
float elapsed_us(void *from, void *to);

/* Rounds of spin that take so long, by one thread or by all of a GPU's SMs. Before that the GPU is
 * kept full until its clock is up. */
u64 rounds_for(double microseconds, int blocks, int threads);

/* NVML's. */
struct process_memory {
    unsigned pid, pad;
    u64 bytes;
    unsigned instance, part;
};
struct gpu_memory {
    u64 total, left, used;
};
struct rates {
    unsigned gpu, memory;
};
struct utilization {
    unsigned pid;
    u64 stamp;
    unsigned sm, memory, encoder, decoder;
};

/* Bytes, as NVML says of this process and of the GPU, and CUDA of what is free; -1 if it does not
 * say. */
struct held {
    double process, gpu, left;
};

struct held held(void);

/* The facts of each kind. before: what was held when the module was there. */
struct held print_held(const char *after, struct held before);
void print_memory(struct held before);
void print_times(void);
void print_captures(void);
void print_slices(double seconds);
void run_ping(double seconds);
void run_copies(double seconds);
void run_load(double ms, double percent, double seconds);
void watch(double seconds);

#endif
