/* Drives a target: `TARGET SEED SECONDS`, or `TARGET SEED NUMBER only` for one input again.
 *
 * Ends with 0 and a line that says how many inputs there were. A fault found by a sanitizer, a
 * check that fails and an input that takes longer than TOO_LONG seconds end it otherwise, with the
 * seed and the number on stderr.
 */
#include "fuzz.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CAPACITY = 1 << 16, MUTATIONS = 8, TOO_LONG = 20, LOOK_EVERY = 64 };

static unsigned long long seed, number;

/* xorshift64*: good enough to choose by, the same everywhere. */
static uint64_t state;

static uint64_t any(void)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * UINT64_C(0x2545f4914f6cdd1d);
}

static size_t below(size_t bound)
{
    return bound == 0 ? 0 : any() % bound;
}

static void say_where(void)
{
    char line[96];
    int size = snprintf(line, sizeof line, "at input %llu of seed %llu\n", number, seed);
    if (write(STDERR_FILENO, line, (size_t)size) != size)
        _exit(3);
}

_Noreturn void fuzz_fail(const char *what)
{
    fprintf(stderr, "not so: %s\n", what);
    abort();
}

static void stop(int signal_number)
{
    static const char slow[] = "too slow\n";
    say_where();
    if (signal_number == SIGALRM && write(STDERR_FILENO, slow, sizeof slow - 1) < 0)
        _exit(3);
    _exit(1);
}

void fuzz_take(struct fuzz_reader *reader, void *out, size_t size)
{
    size_t had = size < reader->left ? size : reader->left;
    memset(out, 0, size);
    memcpy(out, reader->next, had);
    reader->next += had;
    reader->left -= had;
}

/* Numbers at which comparisons and sizes change sides. */
static uint64_t edge(void)
{
    static const uint64_t edges[] = {0,          1,          2,        15,         16,
                                     17,         1023,       1024,     1025,       INT32_MAX,
                                     UINT32_MAX, INT64_MAX,  1u << 31, UINT64_MAX, UINT64_MAX - 1,
                                     1ull << 32, 1ull << 63, 0x7f,     0xff,       0xffff};
    return edges[below(sizeof edges / sizeof *edges)] + below(3) - 1;
}

static void put_number(uint8_t *input, size_t size)
{
    uint64_t value = below(2) ? edge() : any();
    size_t width = (size_t)1 << below(4);
    if (size >= width)
        memcpy(input + below((size - width) / width + 1) * width, &value, width);
}

/* Bytes from one place to another, over what is there. */
static void copy_part(uint8_t *input, size_t size)
{
    size_t length = below(size / 2 + 1);
    memmove(input + below(size - length + 1), input + below(size - length + 1), length);
}

static size_t mutate(uint8_t *input, size_t size)
{
    switch (below(8)) {
    case 0: /* cut short */
        return below(4) == 0 ? below(size + 1) : size;
    case 1: /* a few bytes more */
        for (size_t more = below(64); more > 0 && size < CAPACITY; more--)
            input[size++] = (uint8_t)any();
        return size;
    case 2:
        copy_part(input, size);
        return size;
    case 3:
        if (size > 0)
            input[below(size)] ^= (uint8_t)(1u << below(8));
        return size;
    case 4:
        if (size > 0)
            input[below(size)] = (uint8_t)any();
        return size;
    default:
        put_number(input, size);
        return size;
    }
}

static void one(void)
{
    static uint8_t input[CAPACITY];
    unsigned examples = 0;
    state = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (number + 1) * UINT64_C(0xd1342543de82ef95);
    any();
    while (fuzz_example(examples, input, sizeof input) > 0)
        examples++;
    size_t size = fuzz_example((unsigned)below(examples), input, sizeof input);
    for (size_t times = number < examples ? 0 : below(MUTATIONS); times > 0; times--)
        size = mutate(input, size);
    uint8_t *exact = malloc(size > 0 ? size : 1); /* so that reading beyond it is found */
    if (exact == NULL)
        fuzz_fail("memory for an input");
    memcpy(exact, input, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static void run_for(time_t seconds)
{
    time_t end = time(NULL) + seconds;
    for (number = 0; number % LOOK_EVERY != 0 || time(NULL) < end; number++) {
        if (number % LOOK_EVERY == 0)
            alarm(TOO_LONG);
        one();
    }
}

int main(int count, char **arguments)
{
    if (count < 3)
        return 2;
    seed = strtoull(arguments[1], NULL, 10);
    number = strtoull(arguments[2], NULL, 10);
    signal(SIGALRM, stop);
    signal(SIGABRT, stop); /* how sanitizers are told to end */
    fuzz_begin();
    if (count > 3)
        one();
    else
        run_for((time_t)number);
    fuzz_end();
    printf("%llu inputs of seed %llu\n", number, seed);
    return 0;
}
