/* Rows: one value for each node by number, or for each name of a list by place.
 *
 * What is answered about ten thousand names is looked up in rows, counted and copied. What the
 * values mean is the caller's affair; any thread.
 */
#ifndef SCHEDULER_CORE_ROWS_H
#define SCHEDULER_CORE_ROWS_H

#ifndef VCUDA_CDEF
#include <stddef.h>
#include <stdint.h>
#endif

enum { ROWS_BEST = 10 };

/* out[i] = row[numbers[i]], and 0 for a number beyond the row's `size`; counts: how often each
 * value is among them. */
void rows_gather(const uint32_t *numbers, uint32_t count, const uint8_t *row, uint32_t size,
                 uint8_t *out, uint32_t counts[256]);

/* The places of a list where `row` has `wanted`, ranked by their points: out[i] is 1 for those with
 * the most, 2 for the next, to ROWS_BEST; 0 for all others. points: by number, `size` of them.
 * counts: how many have each rank. Returns how many ranks there are. */
int rows_rank(const uint32_t *numbers, uint32_t count, const uint8_t *row, uint8_t wanted,
              const double *points, uint32_t size, uint8_t *out, uint32_t counts[ROWS_BEST + 1]);

/* For each name of a list whose place in `row` has `wanted`: `before`, the name in its quotes,
 * `after`. starts: as names_read has it, for `count` names of `text`. Returns how much was written
 * to `out`, or SIZE_MAX where its `room` is not enough. */
size_t rows_write(const char *text, const uint32_t *starts, uint32_t count, const uint8_t *row,
                  uint8_t wanted, const char *before, const char *after, char *out, size_t room);

#endif
