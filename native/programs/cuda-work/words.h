/* One phase's words, `key=value` each: the keys, and which of them go together. */
#ifndef PROGRAMS_CUDA_WORK_WORDS_H
#define PROGRAMS_CUDA_WORK_WORDS_H

#include "phase.h"
#include <stddef.h>

enum { COMPLAINT = 320 };

/* Enter one word into a phase. 0, or -1 and what is wrong with it. */
int words_enter(struct phase *phase, const char *word, char complaint[COMPLAINT]);

/* Whether a phase's words make sense together; what was not given gets its usual value. */
int words_finish(struct phase *phase, char complaint[COMPLAINT]);

#endif
