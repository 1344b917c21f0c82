/* A fuzz target, and what drives it (mutate.c).
 *
 * The shape is libFuzzer's, so that a compiler that has it can drive the same target by coverage.
 * Ours needs no more than gcc: it mutates the target's examples, each input determined by the seed
 * and its number alone, so that a failure is repeated by naming the two.
 */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Once, before the first input. */
void fuzz_begin(void);

/* Write an input that means something; its size, or 0 if there is none with this number. */
size_t fuzz_example(unsigned number, uint8_t *out, size_t capacity);

/* Take an input. Whatever it is, this must return, soon, with nothing leaked. */
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

/* Once, after the last: has anything piled up? */
void fuzz_end(void);

/* End the program, saying what was not so and at which input. */
#define FUZZ_CHECK(what)                                                                           \
    do {                                                                                           \
        if (!(what))                                                                               \
            fuzz_fail(#what);                                                                      \
    } while (0)
_Noreturn void fuzz_fail(const char *what);

/* Takes bytes off an input; zeros once it is used up. */
struct fuzz_reader {
    const uint8_t *next;
    size_t left;
};
void fuzz_take(struct fuzz_reader *reader, void *out, size_t size);

#endif
