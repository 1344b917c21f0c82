#include "memory.h"
#include <stdio.h>
#include <stdlib.h>

const char *memory_text(uint64_t bytes, char text[SIZE_TEXT])
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double number = (double)bytes;
    unsigned unit = 0;
    for (; number >= 1024 && unit < 4; unit++)
        number /= 1024;
    snprintf(text, SIZE_TEXT, "%.6g %s", number, names[unit]);
    return text;
}

static void make_room(struct blocks *blocks)
{
    if (blocks->count < blocks->capacity)
        return;
    blocks->capacity = blocks->capacity > 0 ? 2 * blocks->capacity : 16;
    size_t size = blocks->capacity * sizeof *blocks->addresses;
    blocks->addresses = realloc(blocks->addresses, size);
    if (blocks->addresses == NULL) {
        fprintf(stderr, "cuda-play: no host memory for %u addresses\n", blocks->capacity);
        exit(1);
    }
}

int blocks_add(struct blocks *blocks)
{
    make_room(blocks);
    int code = cuMemAlloc(&blocks->addresses[blocks->count], blocks->block);
    if (code != CUDA_ERROR_OUT_OF_MEMORY)
        driver_check(code, "allocating");
    if (code == CUDA_SUCCESS)
        blocks->count++;
    return code;
}

void blocks_remove(struct blocks *blocks)
{
    driver_check(cuMemFree(blocks->addresses[--blocks->count]), "freeing");
}

uint64_t blocks_bytes(const struct blocks *blocks)
{
    return blocks->count * blocks->block;
}
