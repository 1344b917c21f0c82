#include "core/memory/array_size.h"

#include <stdbool.h>
#include <stddef.h>

enum { LAYERED = 0x01, CUBEMAP = 0x04, SPARSE = 0x40, DEFERRED = 0x80 };

/* Tiles of GPUs are 64 bytes by 8 rows, put together into blocks of up to 32 tiles in height and up
 * to 32 slices in depth; a driver takes smaller blocks for what is smaller, so that an extent is
 * rounded up to a power of two until the block is full. Rows are aligned to 512 bytes at most, as
 * pitched memory is. Memory is mapped in pages of 64 KiB: those of 2 MiB, where a driver uses them,
 * it shares out among small arrays as it does among small allocations. */
enum { ROW = 512, TILE_ROWS = 8, BLOCK_ROWS = 256, BLOCK_SLICES = 32, PAGE = 65536 };

/* Elements of `side` by `side` take `bytes` together; of two planes more there is one element in a
 * row for every 1 << right, and one row for every 1 << down. */
struct layout {
    uint16_t first, last; /* formats */
    uint8_t side;
    uint8_t bytes; /* for each channel where `by_channel`, else for all of them */
    bool by_channel;
    uint8_t colour_planes, colour_bytes, right, down;
};

static const struct layout layouts[] = {
    {1, 1, 1, 1, true, 0, 0, 0, 0},       /* UNSIGNED_INT8, 16, 32 */
    {2, 2, 1, 2, true, 0, 0, 0, 0},       /* */
    {3, 3, 1, 4, true, 0, 0, 0, 0},       /* */
    {8, 8, 1, 1, true, 0, 0, 0, 0},       /* SIGNED_INT8, 16, 32 */
    {9, 9, 1, 2, true, 0, 0, 0, 0},       /* */
    {10, 10, 1, 4, true, 0, 0, 0, 0},     /* */
    {16, 16, 1, 2, true, 0, 0, 0, 0},     /* HALF */
    {32, 32, 1, 4, true, 0, 0, 0, 0},     /* FLOAT */
    {80, 80, 1, 4, false, 0, 0, 0, 0},    /* UNORM_INT_101010_2 */
    {81, 81, 1, 2, false, 0, 0, 0, 0},    /* UINT8_PACKED_422, 444 */
    {82, 82, 1, 4, false, 0, 0, 0, 0},    /* */
    {83, 83, 1, 1, false, 1, 2, 1, 1},    /* UINT8 and UINT16 SEMIPLANAR_420 */
    {84, 84, 1, 2, false, 1, 4, 1, 1},    /* */
    {85, 85, 1, 1, false, 1, 2, 1, 0},    /* 422 */
    {86, 86, 1, 2, false, 1, 4, 1, 0},    /* */
    {87, 87, 1, 1, false, 1, 2, 0, 0},    /* 444 */
    {88, 88, 1, 2, false, 1, 4, 0, 0},    /* */
    {89, 89, 1, 1, false, 2, 1, 1, 1},    /* UINT8 and UINT16 PLANAR_420 */
    {90, 90, 1, 2, false, 2, 2, 1, 1},    /* */
    {91, 91, 1, 1, false, 2, 1, 1, 0},    /* 422 */
    {92, 92, 1, 2, false, 2, 2, 1, 0},    /* */
    {93, 93, 1, 1, false, 2, 1, 0, 0},    /* 444 */
    {94, 94, 1, 2, false, 2, 2, 0, 0},    /* */
    {145, 146, 4, 8, false, 0, 0, 0, 0},  /* BC1 */
    {147, 150, 4, 16, false, 0, 0, 0, 0}, /* BC2, BC3 */
    {151, 152, 4, 8, false, 0, 0, 0, 0},  /* BC4 */
    {153, 158, 4, 16, false, 0, 0, 0, 0}, /* BC5, BC6H, BC7 */
    {159, 159, 1, 2, false, 1, 4, 1, 1},  /* P010 */
    {161, 161, 1, 2, false, 1, 4, 1, 1},  /* P016 */
    {162, 162, 1, 1, false, 1, 2, 1, 0},  /* NV16 */
    {163, 164, 1, 2, false, 1, 4, 1, 0},  /* P210, P216 */
    {165, 165, 1, 2, false, 0, 0, 0, 0},  /* YUY2 */
    {166, 169, 1, 4, false, 0, 0, 0, 0},  /* Y210, Y216, AYUV, Y410 */
    {176, 176, 1, 1, false, 1, 2, 1, 1},  /* NV12 */
    {177, 177, 1, 8, false, 0, 0, 0, 0},  /* Y416 */
    {178, 178, 1, 1, false, 2, 1, 0, 0},  /* Y444_PLANAR8, 10 */
    {179, 179, 1, 2, false, 2, 2, 0, 0},  /* */
    {180, 180, 1, 1, false, 1, 2, 0, 0},  /* YUV444_8bit_SemiPlanar, 16 */
    {181, 181, 1, 2, false, 1, 4, 0, 0},  /* */
    {192, 194, 1, 1, true, 0, 0, 0, 0},   /* UNORM_INT8X1, 2, 4 */
    {195, 197, 1, 2, true, 0, 0, 0, 0},   /* UNORM_INT16X1, 2, 4 */
    {198, 200, 1, 1, true, 0, 0, 0, 0},   /* SNORM_INT8X1, 2, 4 */
    {201, 203, 1, 2, true, 0, 0, 0, 0},   /* SNORM_INT16X1, 2, 4 */
};

/* A format newer than this table: as large as the largest documented, whatever its channels. */
static const struct layout unknown = {0, 0, 1, 16, false, 0, 0, 0, 0};

static const struct layout *layout_of(uint32_t format)
{
    for (size_t index = 0; index < sizeof layouts / sizeof *layouts; index++)
        if (format >= layouts[index].first && format <= layouts[index].last)
            return &layouts[index];
    return &unknown;
}

static uint64_t multiplied(uint64_t one, uint64_t other)
{
    uint64_t product;
    return __builtin_mul_overflow(one, other, &product) ? UINT64_MAX : product;
}

static uint64_t added(uint64_t one, uint64_t other)
{
    uint64_t sum;
    return __builtin_add_overflow(one, other, &sum) ? UINT64_MAX : sum;
}

static uint64_t rounded_up(uint64_t value, uint64_t unit)
{
    uint64_t part = value % unit;
    return part == 0 ? value : added(value, unit - part);
}

/* To whole blocks, which are smaller for what is smaller. */
static uint64_t blocked(uint64_t extent, uint64_t smallest, uint64_t largest)
{
    uint64_t block = smallest;
    while (block < extent && block < largest)
        block *= 2;
    return rounded_up(extent, block);
}

/* One dimension of a level, in units of `per` elements; at least one. */
static uint64_t shrunk(uint64_t extent, uint32_t level, uint64_t per)
{
    uint64_t left = extent >> level;
    left = left / per + (left % per != 0);
    return left > 0 ? left : 1;
}

/* One plane of one layer. */
static uint64_t plane_bytes(uint64_t width, uint64_t rows, uint64_t slices, uint64_t bytes)
{
    uint64_t row = rounded_up(multiplied(width, bytes), ROW);
    uint64_t slice = multiplied(row, blocked(rows, TILE_ROWS, BLOCK_ROWS));
    return multiplied(slice, blocked(slices, 1, BLOCK_SLICES));
}

static bool layered(const struct array_shape *shape)
{
    return (shape->flags & (LAYERED | CUBEMAP)) != 0;
}

static uint64_t level_bytes(const struct array_shape *shape, const struct layout *layout,
                            uint32_t level)
{
    uint64_t slices = layered(shape) ? 1 : shrunk(shape->depth, level, 1);
    uint64_t across = shrunk(shape->width, level, layout->side);
    uint64_t down = shrunk(shape->height, level, layout->side);
    uint64_t bytes = multiplied(layout->bytes, layout->by_channel ? shape->channels : 1);
    uint64_t colours =
        plane_bytes(shrunk(across, 0, 1u << layout->right), shrunk(down, 0, 1u << layout->down),
                    slices, layout->colour_bytes);
    return added(plane_bytes(across, down, slices, bytes),
                 multiplied(colours, layout->colour_planes));
}

/* No more than halve the longest extent down to 1, layers or not. */
static uint32_t levels_of(const struct array_shape *shape)
{
    uint64_t any = shape->width | shape->height | shape->depth;
    uint32_t most = any == 0 ? 1 : 64 - (uint32_t)__builtin_clzll(any);
    return shape->levels < 1 ? 1 : shape->levels < most ? shape->levels : most;
}

uint64_t array_size(const struct array_shape *shape)
{
    const struct layout *layout = layout_of(shape->format);
    uint64_t layers = layered(shape) && shape->depth > 0 ? shape->depth : 1, bytes = 0;
    if ((shape->flags & (SPARSE | DEFERRED)) != 0)
        return 0;
    for (uint32_t level = 0; level < levels_of(shape); level++)
        bytes = added(bytes, level_bytes(shape, layout, level));
    return rounded_up(multiplied(bytes, layers), PAGE);
}
