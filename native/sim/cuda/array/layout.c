#include "cuda/array/layout.h"

enum { TILE_WIDTH = 64, TILE_HEIGHT = 8 };
enum { ALL_FLAGS = 0xff, LAYER_FLAGS = ARRAY_LAYERED | ARRAY_CUBEMAP, FACES = 6 };

/* Largest extents, as cuDeviceGetAttribute says them (attributes.c). */
struct extents {
    size_t width, height, depth;
};
static const struct extents largest_1d = {131072, 0, 0}, largest_2d = {131072, 65536, 0},
                            largest_3d = {16384, 16384, 16384},
                            largest_1d_layered = {32768, 0, 2048},
                            largest_2d_layered = {32768, 32768, 2048},
                            largest_cubemap = {32768, 32768, 2046};

static bool layered(const struct array_shape *shape)
{
    return (shape->flags & LAYER_FLAGS) != 0;
}

size_t array_layers(const struct array_shape *shape)
{
    return layered(shape) ? shape->depth : 1;
}

static const struct extents *largest(const struct array_shape *shape)
{
    if ((shape->flags & ARRAY_CUBEMAP) != 0)
        return &largest_cubemap;
    if (layered(shape))
        return shape->height == 0 ? &largest_1d_layered : &largest_2d_layered;
    if (shape->depth > 0)
        return &largest_3d;
    return shape->height > 0 ? &largest_2d : &largest_1d;
}

static bool cubemap_right(const struct array_shape *shape)
{
    if (shape->width != shape->height)
        return false;
    return (shape->flags & ARRAY_LAYERED) != 0 ? shape->depth % FACES == 0 : shape->depth == FACES;
}

static bool extents_right(const struct array_shape *shape)
{
    const struct extents *most = largest(shape);
    if (shape->width == 0 || (layered(shape) && shape->depth == 0))
        return false;
    if (shape->height == 0 && shape->depth > 0 && !layered(shape))
        return false;
    if ((shape->flags & ARRAY_CUBEMAP) != 0 && !cubemap_right(shape))
        return false;
    return shape->width <= most->width && shape->height <= most->height &&
           shape->depth <= most->depth;
}

static bool flags_right(const struct array_shape *shape)
{
    bool flat = shape->height > 0 && shape->depth == 0;
    if ((shape->flags & ~(unsigned)ALL_FLAGS) != 0)
        return false;
    if ((shape->flags & ARRAY_GATHER) != 0 && !flat)
        return false;
    if ((shape->flags & ARRAY_SPARSE) != 0)
        return shape->height > 0 && (shape->flags & ARRAY_DEFERRED) == 0;
    return true;
}

/* Planes and compressed blocks need two dimensions, cut without a rest. What is in several planes
 * is mapped at creation or not at all. */
static bool fits_format(const struct array_shape *shape, const struct array_format *format)
{
    const struct array_plane *last = &format->plane[format->planes - 1];
    size_t right = (size_t)format->block << last->right;
    size_t down = (size_t)format->block << last->down;
    if (format->planes == 1 && format->block == 1)
        return true;
    if (format->planes > 1 && (shape->flags & (ARRAY_SPARSE | ARRAY_DEFERRED)) != 0)
        return false;
    return shape->height > 0 && shape->width % right == 0 && shape->height % down == 0;
}

bool array_shape_valid(const struct array_shape *shape, struct array_format *format)
{
    return array_format(shape->format, shape->channels, format) && extents_right(shape) &&
           flags_right(shape) && fits_format(shape, format);
}

unsigned array_levels(const struct array_shape *shape, unsigned wanted)
{
    size_t longest = shape->width > shape->height ? shape->width : shape->height;
    if (!layered(shape) && shape->depth > longest)
        longest = shape->depth;
    unsigned most = 1;
    while (longest >>= 1)
        most++;
    return wanted < 1 ? 1 : wanted < most ? wanted : most;
}

static size_t shrunk(size_t extent, unsigned level)
{
    return extent == 0 || extent >> level > 0 ? extent >> level : 1;
}

struct array_shape array_level_shape(const struct array_shape *shape, unsigned level)
{
    struct array_shape smaller = *shape;
    smaller.width = shrunk(shape->width, level);
    smaller.height = shrunk(shape->height, level);
    if (!layered(shape))
        smaller.depth = shrunk(shape->depth, level);
    return smaller;
}

struct array_shape array_plane_shape(const struct array_shape *shape,
                                     const struct array_plane *plane)
{
    struct array_shape part = *shape;
    part.width = shrunk(shape->width, plane->right);
    part.height = shrunk(shape->height, plane->down);
    part.format = plane->component;
    part.channels = plane->channels;
    return part;
}

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* One layer, all its slices. */
static uint64_t tiles(const struct array_shape *shape, const struct array_plane *plane,
                      unsigned block)
{
    struct array_shape part = array_plane_shape(shape, plane);
    uint64_t row = round_up(part.width, block) / block * plane->bytes;
    uint64_t rows = part.height == 0 ? 1 : round_up(part.height, block) / block;
    uint64_t slices = layered(shape) || part.depth == 0 ? 1 : part.depth;
    return round_up(row, TILE_WIDTH) * round_up(rows, TILE_HEIGHT) * slices;
}

uint64_t array_level_bytes(const struct array_shape *shape, const struct array_format *format,
                           unsigned level)
{
    struct array_shape smaller = array_level_shape(shape, level);
    uint64_t sum = 0;
    for (unsigned plane = 0; plane < format->planes; plane++)
        sum += tiles(&smaller, &format->plane[plane], format->block);
    return sum * array_layers(shape);
}

uint64_t array_bytes(const struct array_shape *shape, const struct array_format *format,
                     unsigned levels)
{
    uint64_t sum = 0;
    for (unsigned level = 0; level < levels; level++)
        sum += array_level_bytes(shape, format, level);
    return round_up(sum, ARRAY_PAGE);
}
