/* Blocks of device memory, and how sizes are written. */
#ifndef PROGRAMS_CUDA_PLAY_MEMORY_H
#define PROGRAMS_CUDA_PLAY_MEMORY_H

#include "driver.h"

enum { SIZE_TEXT = 24 };

/* For people: `1.5 GiB`. Returns `text`. */
const char *memory_text(uint64_t bytes, char text[SIZE_TEXT]);

/* What is held: `count` blocks of equal size. */
struct blocks {
    device_address *addresses;
    unsigned count;
    unsigned capacity;
    uint64_t block;
};

/* One more block. CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY; any other result ends the program. */
int blocks_add(struct blocks *blocks);
void blocks_remove(struct blocks *blocks);
uint64_t blocks_bytes(const struct blocks *blocks);

#endif
