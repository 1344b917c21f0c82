/* The command line: a verb and its options. */
#ifndef PROGRAMS_CUDA_PLAY_OPTIONS_H
#define PROGRAMS_CUDA_PLAY_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* Sizes in bytes, times in nanoseconds; 0: not given. */
struct options {
    uint64_t block;
    uint64_t total;
    uint64_t memory;
    uint64_t kernel;
    uint64_t seconds;
    uint64_t hold;
    uint64_t device;
    bool until_refused;
    bool sync_each;
};

struct verb {
    const char *name;
    const char *options; /* the names it takes, separated by blanks */
    int (*run)(const struct options *options);
};

/* Run the verb of the command line; status 2 and one line on stderr when it is not right. */
int options_run(const struct verb *verbs, const char *usage, int count, char **words);

#endif
