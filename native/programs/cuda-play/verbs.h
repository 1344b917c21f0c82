/* What cuda-play does; each returns the exit status. */
#ifndef PROGRAMS_CUDA_PLAY_VERBS_H
#define PROGRAMS_CUDA_PLAY_VERBS_H

#include "options.h"

int query(const struct options *options);
int allocate(const struct options *options);
int launch(const struct options *options);
int hold(const struct options *options);

/* Sleep. */
void rest(uint64_t nanoseconds);

#endif
