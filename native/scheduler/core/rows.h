/* What rows say of the names of a list, which stand in `numbers` by their place in it.
 *
 * A row has one value for each node, by number. What is answered about ten thousand names is looked
 * up there, and their places are put together by what was found: places of one kind are a piece of
 * one row, which is counted, ranked and written as such. What the values mean is the caller's
 * affair; any thread.
 */
#ifndef SCHEDULER_CORE_ROWS_H
#define SCHEDULER_CORE_ROWS_H

#ifndef VCUDA_CDEF
#include <stddef.h>
#include <stdint.h>
#endif

enum { ROWS_MARKS = 256, ROWS_BEST = 10 };

/* The places of a list by the mark that `row`, of `size` bytes, has for each; 0 beyond its end.
 * Those with mark m come in their order, and are places[starts[m]] to before starts[m + 1]. There
 * is room for `count` in `marks`, which is scratch, and in `places`. */
void rows_sort(const uint32_t *numbers, uint32_t count, const uint8_t *row, uint32_t size,
               uint8_t *marks, uint32_t *places, uint32_t starts[ROWS_MARKS + 1]);

/* Of `count` places those with the most points, by a row of `size`, then those with the next, and
 * so on: `ranked[starts[r]]` to before `starts[r + 1]` have rank r, 0 to ROWS_BEST - 1. Returns how
 * many ranks there are. There is room for `count` in `ranks`, which is scratch, and in `ranked`. */
int rows_rank(const uint32_t *numbers, const uint32_t *places, uint32_t count, const double *points,
              uint32_t size, uint8_t *ranks, uint32_t *ranked, uint32_t starts[ROWS_BEST + 1]);

/* For each of `count` places of a list: `before`, the name in its quotes, `after`. begins: where
 * names begin in `text`, as names_read has it. Returns how much was written to `out`, or SIZE_MAX
 * where its `room` is not enough. */
size_t rows_write(const char *text, const uint32_t *begins, const uint32_t *places, uint32_t count,
                  const char *before, const char *after, char *out, size_t room);

/* Of `count` places of a list the list that they are by themselves: their numbers, and where names
 * begin in it, as names_read would find them once it is written down. There is room for `count` in
 * `picked`, for one more in `starts`. */
void rows_pick(const uint32_t *numbers, const uint32_t *begins, const uint32_t *places,
               uint32_t count, uint32_t *picked, uint32_t *starts);

#endif
