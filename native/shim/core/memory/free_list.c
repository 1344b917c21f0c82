#include "core/memory/free_list.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static uint64_t end_of(uint64_t start, uint64_t bytes)
{
    uint64_t end = start + bytes;
    end = end > UINT64_MAX - GAP_ALIGNMENT ? end : end + (GAP_ALIGNMENT - 1);
    return end / GAP_ALIGNMENT * GAP_ALIGNMENT;
}

/* Do the neighbours lie in one piece that the pool grew by? */
static bool together(const struct free_list *list, const struct gap *one, const struct gap *next)
{
    if (one->end != next->start)
        return false;
    for (uint32_t i = 0; i < list->chunk_count; i++)
        if (list->chunks[i].start <= one->start && next->end <= list->chunks[i].end)
            return true;
    return false;
}

static void remove_at(struct free_list *list, uint32_t place)
{
    struct gap *gap = &list->pieces[place];
    memmove(gap, gap + 1, (list->count - place - 1) * sizeof *gap);
    list->count--;
}

/* Join the gap at `place` with the one after it if both are the same to everyone. */
static void join(struct free_list *list, uint32_t place)
{
    if (place + 1 >= list->count)
        return;
    struct gap *one = &list->pieces[place], *next = one + 1;
    if (one->stream != next->stream || one->stream == GAP_CLOSED || !together(list, one, next))
        return;
    one->end = next->end;
    one->order = next->order > one->order ? next->order : one->order;
    remove_at(list, place + 1);
}

/* The first gap that ends behind an address. */
static uint32_t first_behind(const struct free_list *list, uint64_t address)
{
    uint32_t low = 0, high = list->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (list->pieces[middle].end > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void insert_at(struct free_list *list, uint32_t place, struct gap gap)
{
    struct gap *at = &list->pieces[place];
    memmove(at + 1, at, (list->count - place) * sizeof *at);
    *at = gap;
    list->count++;
}

/* Where nothing is yet. */
static void insert(struct free_list *list, struct gap gap)
{
    uint32_t place = first_behind(list, gap.start);
    if (list->count == FREE_LIST_SIZE || gap.start >= gap.end)
        return;
    insert_at(list, place, gap);
    join(list, place);
    if (place > 0)
        join(list, place - 1);
}

/* Something is taken out of the middle of a gap; in a full table what is behind it is forgotten. */
static void split(struct free_list *list, uint32_t place, uint64_t start, uint64_t end)
{
    struct gap rest = list->pieces[place];
    rest.start = end;
    list->pieces[place].end = start;
    if (list->count < FREE_LIST_SIZE)
        insert_at(list, place + 1, rest);
}

/* What is left of a gap before and behind what is taken stays. */
static void take(struct free_list *list, uint64_t start, uint64_t bytes)
{
    uint64_t end = end_of(start, bytes);
    uint32_t place = first_behind(list, start);
    if (place < list->count && list->pieces[place].start < start) {
        if (list->pieces[place].end > end)
            split(list, place, start, end);
        else
            list->pieces[place].end = start;
        place++;
    }
    while (place < list->count && list->pieces[place].end <= end)
        remove_at(list, place);
    if (place < list->count && list->pieces[place].start < end)
        list->pieces[place].start = end;
}

/* No longer so: what lies there was given back, or is another chunk now. */
static void forget_chunks(struct free_list *list, uint64_t start, uint64_t end)
{
    for (uint32_t i = 0; i < list->chunk_count;)
        if (list->chunks[i].start < end && start < list->chunks[i].end)
            list->chunks[i] = list->chunks[--list->chunk_count];
        else
            i++;
}

void free_list_grown(struct free_list *list, uint64_t start, uint64_t bytes)
{
    take(list, start, bytes);
    forget_chunks(list, start, start + bytes);
    if (list->chunk_count < GAP_CHUNKS)
        list->chunks[list->chunk_count++] = (struct gap_chunk){start, start + bytes, 0};
    insert(list, (struct gap){start, start + bytes, GAP_ANY, 0});
}

/* The chunk an address is in, if we know it. */
static struct gap_chunk *chunk_of(struct free_list *list, uint64_t address)
{
    for (uint32_t i = 0; i < list->chunk_count; i++)
        if (address >= list->chunks[i].start && address < list->chunks[i].end)
            return &list->chunks[i];
    return NULL;
}

void free_list_give(struct free_list *list, uint64_t start, uint64_t bytes)
{
    struct gap_chunk *chunk = chunk_of(list, start);
    take(list, start, bytes);
    if (chunk != NULL)
        chunk->live++;
}

void free_list_keep(struct free_list *list, uint64_t start, uint64_t bytes)
{
    take(list, start, bytes);
}

void free_list_close(struct free_list *list, uint64_t start, uint64_t bytes)
{
    take(list, start, bytes);
    insert(list, (struct gap){.start = start, .end = end_of(start, bytes), .stream = GAP_CLOSED});
}

void free_list_open(struct free_list *list, uint64_t start, uint64_t bytes, uint64_t stream,
                    uint64_t order)
{
    uint64_t end = end_of(start, bytes);
    struct gap_chunk *chunk = chunk_of(list, start);
    if (chunk != NULL)
        chunk->live -= chunk->live > 0;
    uint32_t first = first_behind(list, start), place = first;
    for (; place < list->count && list->pieces[place].end <= end; place++) {
        struct gap *gap = &list->pieces[place];
        if (gap->stream == GAP_CLOSED && gap->start >= start)
            *gap = (struct gap){gap->start, gap->end, stream, order};
    }
    while (place > first) /* with the one behind them, each other, and the one before */
        join(list, --place);
    if (first > 0)
        join(list, first - 1);
}

void free_list_waited(struct free_list *list, uint64_t stream, uint64_t order)
{
    for (uint32_t place = 0; place < list->count; place++) {
        struct gap *gap = &list->pieces[place];
        bool meant = stream == GAP_ANY || gap->stream == stream;
        if (meant && gap->stream != GAP_CLOSED && gap->order < order)
            gap->stream = GAP_ANY;
    }
}

void free_list_leave(struct free_list *list, uint64_t stream)
{
    for (uint32_t place = 0; place < list->count; place++) {
        struct gap *gap = &list->pieces[place];
        bool meant = stream == GAP_ANY ? gap->stream != GAP_ANY : gap->stream == stream;
        if (meant && gap->stream != GAP_CLOSED)
            gap->stream = GAP_GONE;
    }
}

static bool usable(struct free_list *list, const struct gap *gap, uint64_t stream, bool firm)
{
    const struct gap_chunk *chunk = firm ? chunk_of(list, gap->start) : NULL;
    return (gap->stream == GAP_ANY || gap->stream == stream) &&
           (!firm || (chunk != NULL && chunk->live > 0));
}

bool free_list_fit(struct free_list *list, uint64_t bytes, uint64_t stream, bool firm)
{
    uint64_t run = 0;
    for (uint32_t place = 0; place < list->count; place++) {
        const struct gap *gap = &list->pieces[place];
        if (!usable(list, gap, stream, firm)) {
            run = 0;
            continue;
        }
        bool joined = run > 0 && together(list, gap - 1, gap);
        run = (joined ? run : 0) + (gap->end - gap->start);
        if (run >= bytes)
            return true;
    }
    return false;
}

void free_list_shrunk(struct free_list *list)
{
    for (uint32_t place = 0; place < list->count;) {
        const struct gap *gap = &list->pieces[place];
        const struct gap_chunk *chunk = chunk_of(list, gap->start);
        if (chunk != NULL && chunk->live > 0)
            place++;
        else
            remove_at(list, place);
    }
    for (uint32_t i = 0; i < list->chunk_count;)
        if (list->chunks[i].live == 0)
            list->chunks[i] = list->chunks[--list->chunk_count];
        else
            i++;
}
