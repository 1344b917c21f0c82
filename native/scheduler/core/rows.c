#include "core/rows.h"

#include <stdbool.h>
#include <string.h>

void rows_gather(const uint32_t *numbers, uint32_t count, const uint8_t *row, uint32_t size,
                 uint8_t *out, uint32_t counts[256])
{
    memset(counts, 0, 256 * sizeof *counts);
    for (uint32_t i = 0; i < count; i++) {
        out[i] = numbers[i] < size ? row[numbers[i]] : 0;
        counts[out[i]]++;
    }
}

/* Takes points in among the `found` best, which descend; how many there are then. */
static int keep_best(double best[ROWS_BEST], int found, double points)
{
    int place = found;
    while (place > 0 && best[place - 1] < points)
        place--;
    if (place == ROWS_BEST || (place > 0 && best[place - 1] == points))
        return found;
    int last = found < ROWS_BEST ? found : ROWS_BEST - 1;
    memmove(&best[place + 1], &best[place], (size_t)(last - place) * sizeof *best);
    best[place] = points;
    return last + 1;
}

static uint8_t rank_of(const double best[ROWS_BEST], int found, double points)
{
    for (int rank = 0; rank < found; rank++)
        if (best[rank] == points)
            return (uint8_t)(rank + 1);
    return 0;
}

int rows_rank(const uint32_t *numbers, uint32_t count, const uint8_t *row, uint8_t wanted,
              const double *points, uint32_t size, uint8_t *out, uint32_t counts[ROWS_BEST + 1])
{
    double best[ROWS_BEST];
    int found = 0;
    memset(counts, 0, (ROWS_BEST + 1) * sizeof *counts);
    for (uint32_t i = 0; i < count; i++)
        if (row[i] == wanted && numbers[i] < size)
            found = keep_best(best, found, points[numbers[i]]);
    for (uint32_t i = 0; i < count; i++) {
        bool ranked = found > 0 && row[i] == wanted && numbers[i] < size &&
                      points[numbers[i]] >= best[found - 1];
        out[i] = ranked ? rank_of(best, found, points[numbers[i]]) : 0;
        counts[out[i]]++;
    }
    return found;
}

static char *put(char *out, const char *text, size_t size)
{
    memcpy(out, text, size);
    return out + size;
}

size_t rows_write(const char *text, const uint32_t *starts, uint32_t count, const uint8_t *row,
                  uint8_t wanted, const char *before, const char *after, char *out, size_t room)
{
    size_t first = strlen(before), last = strlen(after);
    char *at = out;
    for (uint32_t i = 0; i < count; i++) {
        if (row[i] != wanted)
            continue;
        size_t name = starts[i + 1] - 1 - starts[i];
        if (first + name + last > room - (size_t)(at - out))
            return SIZE_MAX;
        at = put(at, before, first);
        at = put(at, text + starts[i], name);
        at = put(at, after, last);
    }
    return (size_t)(at - out);
}
