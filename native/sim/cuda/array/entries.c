/* The API of arrays: descriptors in, descriptors out, in all their forms. */
#include "cuda/array/array.h"

typedef struct {
    size_t Width, Height;
    unsigned Format, NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
    size_t Width, Height, Depth;
    unsigned Format, NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

typedef struct { /* of the first, 32-bit interface */
    unsigned Width, Height;
    unsigned Format, NumChannels;
} CUDA_ARRAY_DESCRIPTOR_v1;

typedef struct {
    unsigned Width, Height, Depth;
    unsigned Format, NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR_v1;

#define FLAT(from) {(from)->Width, (from)->Height, 0, (from)->Format, (from)->NumChannels, 0}
#define DEEP(from)                                                                                 \
    {(from)->Width,  (from)->Height,      (from)->Depth,                                           \
     (from)->Format, (from)->NumChannels, (from)->Flags}

static CUresult create(CUarray *out, const struct array_shape *shape)
{
    struct array *made;
    CUresult result = array_create(shape, false, 1, &made);
    if (result == CUDA_SUCCESS)
        *out = made;
    return result;
}

/* Arguments that are missing are found first, but not before the driver is started. */
static CUresult present(const void *one, const void *other)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result == CUDA_SUCCESS && (one == NULL || other == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return result;
}

API CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *from)
{
    CUresult result = present(out, from);
    return result == CUDA_SUCCESS ? create(out, &(struct array_shape)FLAT(from)) : result;
}

API CUresult cuArrayCreate(CUarray *out, const CUDA_ARRAY_DESCRIPTOR_v1 *from)
{
    CUresult result = present(out, from);
    return result == CUDA_SUCCESS ? create(out, &(struct array_shape)FLAT(from)) : result;
}

API CUresult cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *from)
{
    CUresult result = present(out, from);
    return result == CUDA_SUCCESS ? create(out, &(struct array_shape)DEEP(from)) : result;
}

API CUresult cuArray3DCreate(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR_v1 *from)
{
    CUresult result = present(out, from);
    return result == CUDA_SUCCESS ? create(out, &(struct array_shape)DEEP(from)) : result;
}

API CUresult cuArrayDestroy(CUarray array)
{
    return array_destroy(array, false);
}

static CUresult shape_of(const void *out, CUarray array, struct array_shape *shape)
{
    struct array found;
    CUresult result = present(out, out);
    if (result == CUDA_SUCCESS)
        result = array_look(array, false, &found);
    if (result == CUDA_SUCCESS)
        *shape = found.shape;
    return result;
}

#define ANSWER_FLAT(type, out, array)                                                              \
    struct array_shape shape;                                                                      \
    CUresult result = shape_of(out, array, &shape);                                                \
    if (result == CUDA_SUCCESS)                                                                    \
        *(out) = (type){shape.width, shape.height, shape.format, shape.channels};                  \
    return result
#define ANSWER_DEEP(type, out, array)                                                              \
    struct array_shape shape;                                                                      \
    CUresult result = shape_of(out, array, &shape);                                                \
    if (result == CUDA_SUCCESS)                                                                    \
        *(out) = (type){shape.width,  shape.height,   shape.depth,                                 \
                        shape.format, shape.channels, shape.flags};                                \
    return result

API CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *out, CUarray array)
{
    ANSWER_FLAT(CUDA_ARRAY_DESCRIPTOR, out, array);
}

API CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *out, CUarray array)
{
    ANSWER_FLAT(CUDA_ARRAY_DESCRIPTOR_v1, out, array);
}

API CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *out, CUarray array)
{
    ANSWER_DEEP(CUDA_ARRAY3D_DESCRIPTOR, out, array);
}

API CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *out, CUarray array)
{
    ANSWER_DEEP(CUDA_ARRAY3D_DESCRIPTOR_v1, out, array);
}

API CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *from,
                                    unsigned levels)
{
    struct array *made;
    CUresult result = present(out, from);
    if (result == CUDA_SUCCESS)
        result = array_create(&(struct array_shape)DEEP(from), true, levels, &made);
    if (result == CUDA_SUCCESS)
        *out = made;
    return result;
}

API CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    return array_destroy(array, true);
}

/* A level or a plane; driver->mutex is held. */
static CUresult part(CUarray *out, struct array *whole, unsigned number)
{
    unsigned count = whole->mipmapped ? whole->levels : whole->format.planes;
    if (number >= count || (!whole->mipmapped && count == 1))
        return CUDA_ERROR_INVALID_VALUE;
    struct array_shape shape = whole->mipmapped
                                   ? array_level_shape(&whole->shape, number)
                                   : array_plane_shape(&whole->shape, &whole->format.plane[number]);
    struct array *made = array_part(whole, number, &shape);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = made;
    return CUDA_SUCCESS;
}

static CUresult part_of(CUarray *out, struct array *whole, bool mipmapped, unsigned number)
{
    struct driver *driver;
    CUresult result = present(out, out);
    if (result == CUDA_SUCCESS)
        result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver->mutex);
    result = array_known(driver, whole, mipmapped) ? part(out, whole, number)
                                                   : CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

API CUresult cuMipmappedArrayGetLevel(CUarray *out, CUmipmappedArray whole, unsigned level)
{
    return part_of(out, whole, true, level);
}

API CUresult cuArrayGetPlane(CUarray *out, CUarray whole, unsigned plane)
{
    return part_of(out, whole, false, plane);
}
