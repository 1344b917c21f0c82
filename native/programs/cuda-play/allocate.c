/* `allocate`: block by block, up to a total or until refused. Refused, it gives a block back, takes
 * it again, and goes on. */
#include "driver.h"
#include "memory.h"
#include "verbs.h"
#include <stdbool.h>
#include <stdio.h>

static bool wants_more(const struct options *options, const struct blocks *blocks)
{
    if (options->total > 0)
        return blocks_bytes(blocks) + blocks->block <= options->total;
    return options->until_refused || blocks->count == 0;
}

/* The more there are, the less often: 1, 2, 4, … */
static bool worth_a_line(size_t count)
{
    return (count & (count - 1)) == 0;
}

/* Take blocks; false when one was refused. */
static bool take(const struct options *options, struct blocks *blocks)
{
    char block[SIZE_TEXT], held[SIZE_TEXT];
    while (wants_more(options, blocks)) {
        if (blocks_add(blocks) != CUDA_SUCCESS)
            return false;
        if (worth_a_line(blocks->count))
            printf("allocated %s: %s held\n", memory_text(blocks->block, block),
                   memory_text(blocks_bytes(blocks), held));
    }
    return true;
}

/* After a refusal: what was held before can be had again. 0, or the exit status. */
static int recover(struct blocks *blocks)
{
    char text[SIZE_TEXT];
    printf("refused %s: CUDA_ERROR_OUT_OF_MEMORY", memory_text(blocks->block, text));
    printf(", %s held\n", memory_text(blocks_bytes(blocks), text));
    if (blocks->count == 0)
        return 0;
    blocks_remove(blocks);
    if (blocks_add(blocks) != CUDA_SUCCESS) {
        fprintf(stderr, "cuda-play: a block that was freed could not be allocated again\n");
        return 1;
    }
    printf("freed one block and allocated it again\n");
    return 0;
}

int allocate(const struct options *options)
{
    char text[SIZE_TEXT];
    struct blocks blocks = {.block = options->block};
    if (options->block == 0) {
        fprintf(stderr, "cuda-play: allocate: --block is needed, for example --block 256MiB\n");
        return 2;
    }
    driver_load();
    driver_use((int)options->device);
    bool refused = !take(options, &blocks);
    int status = refused ? recover(&blocks) : 0;
    if (status != 0)
        return status;
    rest(options->hold);
    printf("held %s at most, %d refused\n", memory_text(blocks_bytes(&blocks), text), refused);
    while (blocks.count > 0)
        blocks_remove(&blocks);
    return 0;
}
