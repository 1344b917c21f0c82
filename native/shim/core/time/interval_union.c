#include "core/time/interval_union.h"

#include <string.h>

static void take_out(struct interval_union *cover, uint32_t first, uint32_t end)
{
    memmove(&cover->of[first], &cover->of[end], (cover->count - end) * sizeof cover->of[0]);
    cover->count -= end - first;
}

/* Before the place `at`. The oldest makes room; one older than all is not remembered. */
static void put_in(struct interval_union *cover, uint32_t at, struct union_interval span)
{
    if (cover->count == INTERVAL_UNION_SIZE && at == 0)
        return;
    if (cover->count == INTERVAL_UNION_SIZE) {
        take_out(cover, 0, 1);
        at--;
    }
    memmove(&cover->of[at + 1], &cover->of[at], (cover->count - at) * sizeof cover->of[0]);
    cover->of[at] = span;
    cover->count++;
}

static int64_t smaller(int64_t left, int64_t right)
{
    return left < right ? left : right;
}

static int64_t larger(int64_t left, int64_t right)
{
    return left > right ? left : right;
}

uint64_t interval_union_add(struct interval_union *cover, int64_t since, int64_t until)
{
    if (until <= since)
        return 0;
    struct union_interval all = {since, until};
    int64_t fresh = until - since;
    uint32_t first = 0, end;
    while (first < cover->count && cover->of[first].until < since)
        first++;
    for (end = first; end < cover->count && cover->of[end].since <= until; end++) {
        struct union_interval old = cover->of[end];
        fresh -= smaller(until, old.until) - larger(since, old.since);
        all.since = smaller(all.since, old.since);
        all.until = larger(all.until, old.until);
    }
    take_out(cover, first, end);
    put_in(cover, first, all);
    return (uint64_t)fresh;
}
