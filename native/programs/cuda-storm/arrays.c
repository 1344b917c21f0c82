/* Arrays of shapes that fill the tiles they lie in, so that nothing is added but to whole pages. */
#include "kinds.h"

enum {
    FLOAT = 0x20,
    CHANNELS = 4, /* an element has 16 bytes */
    PAGE = 65536,
    WIDTH = 256, /* elements: a row has 4096 bytes, 16 rows fill a page */
    ROWS = 16,
    MOST_ROWS = 65536,
    MOST_SLICES = 16384,
    LEVELS = 2,
    LEVELS_WIDTH = 512,
    LEVELS_ROW = LEVELS_WIDTH * 16 + LEVELS_WIDTH / 2 * 16 / 2, /* with its part of the level
                                                                   below, of half its size */
    LEVELS_ROWS = 32,                                           /* fill 5 pages */
};

static bool array_there(void)
{
    return cuArrayCreate_v2 != NULL;
}

static int array_take(struct block *block, uint64_t bytes)
{
    struct array_shape shape = {WIDTH, bytes / PAGE * ROWS, FLOAT, CHANNELS};
    return cuArrayCreate_v2(&block->object, &shape);
}

static bool array3d_there(void)
{
    return cuArray3DCreate_v2 != NULL;
}

static int array3d_take(struct block *block, uint64_t bytes)
{
    struct array_shape_3d shape = {WIDTH, ROWS, bytes / PAGE, FLOAT, CHANNELS, 0};
    return cuArray3DCreate_v2(&block->object, &shape);
}

static int array_give(struct block *block)
{
    return cuArrayDestroy(block->object);
}

static bool mipmap_there(void)
{
    return cuMipmappedArrayCreate != NULL;
}

static int mipmap_take(struct block *block, uint64_t bytes)
{
    struct array_shape_3d shape = {LEVELS_WIDTH, bytes / LEVELS_ROW, 0, FLOAT, CHANNELS, 0};
    return cuMipmappedArrayCreate(&block->object, &shape, LEVELS);
}

static int mipmap_give(struct block *block)
{
    return cuMipmappedArrayDestroy(block->object);
}

const struct kind kind_array = {"array",     array_there, array_take,
                                array_give,  PAGE,        (uint64_t)PAGE * MOST_ROWS / ROWS,
                                DEVICE_PAGE, DEVICE_PAGE, false};
const struct kind kind_array3d = {"array3d",   array3d_there, array3d_take,
                                  array_give,  PAGE,          (uint64_t)PAGE * MOST_SLICES,
                                  DEVICE_PAGE, DEVICE_PAGE,   false};
const struct kind kind_mipmap = {"mipmap",
                                 mipmap_there,
                                 mipmap_take,
                                 mipmap_give,
                                 LEVELS_ROW * LEVELS_ROWS,
                                 (uint64_t)LEVELS_ROW * MOST_ROWS,
                                 DEVICE_PAGE,
                                 DEVICE_PAGE,
                                 false};
