#include "core/rows.h"

#include <string.h>

/* Places by their marks, of which there are `kinds`; starts: how many have each, in places 1 on. */
static void spread(const uint8_t *marks, const uint32_t *from, uint32_t count, uint32_t *places,
                   uint32_t *starts, int kinds)
{
    uint32_t next[ROWS_MARKS];
    for (int mark = 0; mark < kinds; mark++) {
        next[mark] = starts[mark];
        starts[mark + 1] += starts[mark];
    }
    for (uint32_t i = 0; i < count; i++)
        if (marks[i] < kinds)
            places[next[marks[i]]++] = from == NULL ? i : from[i];
}

void rows_sort(const uint32_t *numbers, uint32_t count, const uint8_t *row, uint32_t size,
               uint8_t *marks, uint32_t *places, uint32_t starts[ROWS_MARKS + 1])
{
    memset(starts, 0, (ROWS_MARKS + 1) * sizeof *starts);
    for (uint32_t i = 0; i < count; i++) {
        marks[i] = numbers[i] < size ? row[numbers[i]] : 0;
        starts[marks[i] + 1]++;
    }
    spread(marks, NULL, count, places, starts, ROWS_MARKS);
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

/* ROWS_BEST where they are not among the best, of which there is one. */
static uint8_t rank_of(const double best[ROWS_BEST], int found, double points)
{
    if (points < best[found - 1])
        return ROWS_BEST;
    for (int rank = 0; rank < found; rank++)
        if (best[rank] == points)
            return (uint8_t)rank;
    return ROWS_BEST;
}

int rows_rank(const uint32_t *numbers, const uint32_t *places, uint32_t count, const double *points,
              uint32_t size, uint8_t *ranks, uint32_t *ranked, uint32_t starts[ROWS_BEST + 1])
{
    double best[ROWS_BEST];
    int found = 0;
    memset(starts, 0, (ROWS_BEST + 1) * sizeof *starts);
    for (uint32_t i = 0; i < count; i++)
        if (numbers[places[i]] < size)
            found = keep_best(best, found, points[numbers[places[i]]]);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = numbers[places[i]];
        ranks[i] = number < size ? rank_of(best, found, points[number]) : ROWS_BEST;
        if (ranks[i] < ROWS_BEST)
            starts[ranks[i] + 1]++;
    }
    spread(ranks, places, count, ranked, starts, ROWS_BEST);
    return found;
}

static char *put(char *out, const char *text, size_t size)
{
    memcpy(out, text, size);
    return out + size;
}

size_t rows_write(const char *text, const uint32_t *begins, const uint32_t *places, uint32_t count,
                  const char *before, const char *after, char *out, size_t room)
{
    size_t first = strlen(before), last = strlen(after);
    char *at = out;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t begin = begins[places[i]];
        size_t name = begins[places[i] + 1] - 1 - begin;
        if (first + name + last > room - (size_t)(at - out))
            return SIZE_MAX;
        at = put(at, before, first);
        at = put(at, text + begin, name);
        at = put(at, after, last);
    }
    return (size_t)(at - out);
}

void rows_pick(const uint32_t *numbers, const uint32_t *begins, const uint32_t *places,
               uint32_t count, uint32_t *picked, uint32_t *starts)
{
    starts[0] = 0;
    for (uint32_t i = 0; i < count; i++) {
        picked[i] = numbers[places[i]];
        starts[i + 1] = starts[i] + begins[places[i] + 1] - begins[places[i]];
    }
}
