/* How large an array is: which descriptors are right, and what memory one takes. Pure.
 *
 * The layout is the simulator's own, modelled on the tiles of a GPU: rows of 64 bytes, 8 rows to a
 * tile, and the whole in pages of 64 KiB. So an array takes more than its elements do, as on a real
 * GPU, and by another rule than any real one: who wants to know must ask, as the driver API has it
 * (cuArrayGetMemoryRequirements).
 */
#ifndef SIM_CUDA_ARRAY_LAYOUT_H
#define SIM_CUDA_ARRAY_LAYOUT_H

#include "cuda/array/format.h"
#include <stddef.h>

enum { ARRAY_PAGE = 65536 };

enum array_flag {
    ARRAY_LAYERED = 0x01,
    ARRAY_SURFACE = 0x02,
    ARRAY_CUBEMAP = 0x04,
    ARRAY_GATHER = 0x08,
    ARRAY_DEPTH_TEXTURE = 0x10,
    ARRAY_COLOUR_ATTACHMENT = 0x20,
    ARRAY_SPARSE = 0x40,
    ARRAY_DEFERRED = 0x80,
};

/* As documented for CUDA_ARRAY3D_DESCRIPTOR: an extent that the kind of array lacks is 0, and of
 * layered arrays and cubemaps the depth is the number of layers. */
struct array_shape {
    size_t width, height, depth;
    unsigned format, channels, flags;
};

/* Is there such an array? Fills in what its elements are. */
bool array_shape_valid(const struct array_shape *shape, struct array_format *format);

/* How many levels there are if `wanted` are asked for. */
unsigned array_levels(const struct array_shape *shape, unsigned wanted);

/* One level, or one plane, as an array of its own. */
struct array_shape array_level_shape(const struct array_shape *shape, unsigned level);
struct array_shape array_plane_shape(const struct array_shape *shape,
                                     const struct array_plane *plane);

/* Bytes in tiles, all planes and layers, of a level. */
uint64_t array_level_bytes(const struct array_shape *shape, const struct array_format *format,
                           unsigned level);

/* Bytes of memory for so many levels, in whole pages. */
uint64_t array_bytes(const struct array_shape *shape, const struct array_format *format,
                     unsigned levels);

/* Layers, faces of a cubemap too: what levels do not shrink. */
size_t array_layers(const struct array_shape *shape);

#endif
