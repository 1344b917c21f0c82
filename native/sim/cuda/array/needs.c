/* What an array that has no memory of its own yet will need: its size, or its tiles. */
#include "cuda/array/array.h"

typedef struct {
    size_t size;
    size_t alignment;
    unsigned reserved[4];
} CUDA_ARRAY_MEMORY_REQUIREMENTS;

typedef struct {
    struct {
        unsigned width, height, depth;
    } tileExtent;
    unsigned miptailFirstLevel;
    unsigned long long miptailSize;
    unsigned flags;
    unsigned reserved[4];
} CUDA_ARRAY_SPARSE_PROPERTIES;

static CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, struct array *handle,
                             bool mipmapped, CUdevice device)
{
    struct driver *driver;
    struct array array;
    const struct sim_gpu *gpu;
    CUresult result = driver_device(device, &driver, &gpu);
    if (result == CUDA_SUCCESS)
        result = array_look(handle, mipmapped, &array);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || array.whole != NULL || (array.shape.flags & ARRAY_DEFERRED) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t bytes = array_bytes(&array.shape, &array.format, array.levels);
    *out = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = bytes, .alignment = ARRAY_PAGE};
    return CUDA_SUCCESS;
}

API CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUarray array,
                                          CUdevice device)
{
    return requirements(out, array, false, device);
}

API CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out,
                                                   CUmipmappedArray array, CUdevice device)
{
    return requirements(out, array, true, device);
}

/* Tiles are pages of as equal sides as powers of two allow, the width the longest. */
static void tile(const struct array *array, CUDA_ARRAY_SPARSE_PROPERTIES *out)
{
    const struct array_format *format = &array->format;
    bool solid = array->shape.depth > 0 && array_layers(&array->shape) == 1;
    unsigned sides = solid ? 3 : 2, extents[3] = {1, 1, 1}, side = 0;
    for (unsigned bytes = format->plane[0].bytes; bytes < ARRAY_PAGE; bytes *= 2)
        extents[side++ % sides] *= 2;
    out->tileExtent.width = extents[0] * format->block;
    out->tileExtent.height = extents[1] * format->block;
    out->tileExtent.depth = extents[2];
}

static bool within_tile(const struct array_shape *shape, const CUDA_ARRAY_SPARSE_PROPERTIES *tile)
{
    return shape->width < tile->tileExtent.width || shape->height < tile->tileExtent.height;
}

/* The levels too small for a tile of their own lie together, once for each layer. */
static void tail(const struct array *array, CUDA_ARRAY_SPARSE_PROPERTIES *out)
{
    uint64_t bytes = 0;
    unsigned level = 0;
    for (; level < array->levels; level++) {
        struct array_shape shape = array_level_shape(&array->shape, level);
        if (within_tile(&shape, out))
            break;
    }
    out->miptailFirstLevel = level;
    for (; level < array->levels; level++)
        bytes += array_level_bytes(&array->shape, &array->format, level);
    bytes /= array_layers(&array->shape);
    out->miptailSize = (bytes + ARRAY_PAGE - 1) / ARRAY_PAGE * ARRAY_PAGE;
}

static CUresult sparse(CUDA_ARRAY_SPARSE_PROPERTIES *out, struct array *handle, bool mipmapped)
{
    struct array array;
    CUresult result = array_look(handle, mipmapped, &array);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || array.whole != NULL || (array.shape.flags & ARRAY_SPARSE) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUDA_ARRAY_SPARSE_PROPERTIES){0};
    tile(&array, out);
    if (mipmapped)
        tail(&array, out);
    return CUDA_SUCCESS;
}

API CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *out, CUarray array)
{
    return sparse(out, array, false);
}

API CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *out,
                                                 CUmipmappedArray array)
{
    return sparse(out, array, true);
}
