/* Numbers with a unit, as people write them: 1.5GiB, 500us. */
#ifndef PROGRAMS_CUDA_WORK_AMOUNT_H
#define PROGRAMS_CUDA_WORK_AMOUNT_H

#include <stdbool.h>
#include <stdint.h>

enum unit { SIZE, TIME, COUNT };

/* Bytes, nanoseconds or a whole number; a time needs its unit, a size without one is in bytes.
 * False, and `out` untouched, unless all of the text is one number of that unit. */
bool amount_read(const char *text, enum unit unit, uint64_t *out);

#endif
