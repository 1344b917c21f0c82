/* The scheduler's table of names, and lists that anybody may have sent.
 *
 * Input: names that come and go; then a list, which is read where it ends with its memory, and
 * answered. What is read has to be what stands there.
 */
#include "core/names.h"
#include "core/rows.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 64, NAME = 12, CAPACITY = 512, ROW = 40 };

void fuzz_begin(void) {}

void fuzz_end(void) {}

size_t fuzz_example(unsigned number, uint8_t *out, size_t capacity)
{
    static const char list[] = "\"node-1\",\"a\",\"node-123456789\",\"b.c-d\",\"\",\"node-1\"]";
    uint8_t steps = (uint8_t)(number * 5);
    (void)capacity;
    if (number > 3)
        return 0;
    *out++ = steps;
    for (unsigned step = 0; step < steps; step++, out += 3 + NAME) {
        uint16_t place = (uint16_t)(step + 1);
        memset(out, 0, 3 + NAME);
        memcpy(out + 1, &place, sizeof place);
        memcpy(out + 3, step % 2 == 0 ? "node-1" : "a", step % 2 == 0 ? 6 : 1);
    }
    memcpy(out, list, sizeof list - 1);
    return 1 + (size_t)steps * (3 + NAME) + sizeof list - 1;
}

static void change(struct names *names, struct fuzz_reader *reader)
{
    uint8_t what;
    uint16_t number;
    char name[NAME];
    fuzz_take(reader, &what, sizeof what);
    fuzz_take(reader, &number, sizeof number);
    fuzz_take(reader, name, sizeof name);
    size_t size = what >= 128 ? what % (NAME + 1) : strnlen(name, sizeof name);
    uint32_t known = names_find(names, name, size);
    if (what % 3 == 2)
        FUZZ_CHECK(names_remove(names, name, size) == known);
    else if (names_add(names, name, size, number) == 0)
        FUZZ_CHECK(known == NAMES_NOBODY && names_find(names, name, size) == number);
    else
        FUZZ_CHECK(names_find(names, name, size) == known);
}

/* Each number is what looking its name up says, and the names stand one behind another. */
static void check(const struct names *names, const char *text, size_t size, const uint32_t *numbers,
                  const uint32_t *begins, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        FUZZ_CHECK(begins[i] + 3 <= begins[i + 1] && begins[i + 1] <= size);
        size_t length = begins[i + 1] - 3 - begins[i];
        FUZZ_CHECK(text[begins[i]] == '"' && text[begins[i + 1] - 2] == '"');
        FUZZ_CHECK(names_find(names, text + begins[i] + 1, length) == numbers[i]);
    }
    FUZZ_CHECK(begins[0] == 0 && text[begins[count] - 1] == ']');
}

/* All on the heap, where a step beyond an end is found. */
static void *take(size_t size)
{
    void *memory = malloc(size > 0 ? size : 1);
    FUZZ_CHECK(memory != NULL);
    return memory;
}

/* What was picked is what is read in the list that it is written as. */
static void check_pick(const struct names *names, const char *text, const uint32_t *numbers,
                       const uint32_t *begins, const uint32_t *places, uint32_t count)
{
    uint32_t *picked = take(count * sizeof *picked), *read = take(count * sizeof *read);
    uint32_t *starts = take((count + 1) * sizeof *starts);
    uint32_t *again = take((count + 1) * sizeof *again);
    rows_pick(numbers, begins, places, count, picked, starts);
    char *list = take(starts[count]);
    FUZZ_CHECK(rows_write(text, begins, places, count, "", ",", list, starts[count]) ==
               starts[count]);
    if (count > 0) {
        list[starts[count] - 1] = ']';
        FUZZ_CHECK(names_read(names, list, starts[count], read, again, count) == (int)count);
        FUZZ_CHECK(memcmp(picked, read, count * sizeof *read) == 0);
        FUZZ_CHECK(memcmp(starts, again, (count + 1) * sizeof *again) == 0);
    }
    free(picked);
    free(read);
    free(starts);
    free(again);
    free(list);
}

static void answer(const struct names *names, const char *text, const uint32_t *numbers,
                   const uint32_t *begins, uint32_t count, size_t room)
{
    uint32_t *places = take(count * sizeof *places), *ranked = take(count * sizeof *ranked);
    uint8_t row[ROW], *scratch = take(count);
    char *out = take(room);
    double points[ROW];
    uint32_t starts[ROWS_MARKS + 1], ranks[ROWS_BEST + 1];
    for (int i = 0; i < ROW; i++) {
        row[i] = (uint8_t)(i % 3);
        points[i] = i * 7 % 13;
    }
    rows_sort(numbers, count, row, ROW, scratch, places, starts);
    FUZZ_CHECK(starts[0] == 0 && starts[3] == count && starts[ROWS_MARKS] == count);
    uint32_t own = starts[2] - starts[1], *first = places + starts[1];
    int found = rows_rank(numbers, first, own, points, ROW, scratch, ranked, ranks);
    FUZZ_CHECK(found >= 0 && found <= ROWS_BEST && (found > 0) == (own > 0));
    size_t size = rows_write(text, begins, first, own, "{", "},", out, room);
    FUZZ_CHECK(size == SIZE_MAX || size <= room);
    check_pick(names, text, numbers, begins, first, own);
    free(places);
    free(ranked);
    free(scratch);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    static uint32_t numbers[CAPACITY], begins[CAPACITY + 1];
    struct fuzz_reader reader = {input, size};
    struct names names = {0};
    uint8_t steps;
    fuzz_take(&reader, &steps, sizeof steps);
    for (uint8_t step = 0; step < steps % STEPS; step++)
        change(&names, &reader);
    const char *text = (const char *)reader.next;
    int count = names_read(&names, text, reader.left, numbers, begins, CAPACITY);
    if (count > 0) {
        check(&names, text, reader.left, numbers, begins, (uint32_t)count);
        answer(&names, text, numbers, begins, (uint32_t)count, reader.left / 2);
        answer(&names, text, numbers, begins, (uint32_t)count, 4 * reader.left);
    }
    names_clear(&names);
    return 0;
}
