/* Texture and surface objects: views of memory for kernels. What they describe is checked and
 * kept; no kernel reads through one. driver->mutex guards the list. */
#include "cuda/array/array.h"
#include "cuda/memory/addresses.h"
#include <stdlib.h>

enum resource_type { FROM_ARRAY, FROM_MIPMAPPED, FROM_LINEAR, FROM_PITCHED };
enum { ALIGNMENT = 512, PITCH_ALIGNMENT = 32 }; /* as attributes.c says */
enum { LINEAR_ELEMENTS = 1 << 27, PITCHED_WIDTH = 131072, PITCHED_HEIGHT = 65000 };

/* CUDA_RESOURCE_DESC. `count` bytes or elements; height and pitch of pitched memory only. */
struct resource {
    int type;
    union {
        struct array *array;
        struct {
            CUdeviceptr start;
            unsigned format, channels;
            size_t count, height, pitch;
        };
        unsigned char bytes[128];
    };
    unsigned flags;
};

/* CUDA_TEXTURE_DESC and CUDA_RESOURCE_VIEW_DESC. */
struct sampling {
    unsigned char bytes[104];
};

struct region {
    unsigned format;
    size_t width, height, depth;
    unsigned first_level, last_level, first_layer, last_layer, reserved[16];
};

_Static_assert(sizeof(struct resource) == 144, "as the interface has it");
_Static_assert(sizeof(struct region) == 112, "as the interface has it");

struct view {
    struct view *next;
    uint64_t number;
    bool surface;
    bool restricted; /* to a region */
    struct resource resource;
    struct sampling sampling;
    struct region region;
};

static struct view *find(struct driver *driver, uint64_t number, bool surface)
{
    struct view *view = driver->views;
    while (view != NULL && (view->number != number || view->surface != surface))
        view = view->next;
    return view;
}

static bool memory_valid(struct driver *driver, const struct resource *resource)
{
    struct array_format format;
    if (!array_format(resource->format, resource->channels, &format) || format.planes > 1 ||
        resource->start % ALIGNMENT != 0 || resource->count == 0 ||
        addresses_find(&driver->memory, resource->start) == NULL)
        return false;
    size_t element = format.plane[0].bytes;
    if (resource->type == FROM_LINEAR)
        return resource->count / element <= LINEAR_ELEMENTS;
    return resource->count <= PITCHED_WIDTH && resource->height > 0 &&
           resource->height <= PITCHED_HEIGHT && resource->pitch % PITCH_ALIGNMENT == 0 &&
           resource->pitch >= resource->count * element;
}

/* driver->mutex is held. */
static bool resource_valid(struct driver *driver, const struct resource *resource)
{
    if (resource->flags != 0)
        return false;
    switch (resource->type) {
    case FROM_ARRAY:
    case FROM_MIPMAPPED:
        return array_known(driver, resource->array, resource->type == FROM_MIPMAPPED);
    case FROM_LINEAR:
    case FROM_PITCHED:
        return memory_valid(driver, resource);
    default:
        return false;
    }
}

/* Only of arrays, of as many elements as they have; compressed blocks can be seen as elements. */
static bool region_valid(const struct resource *resource, const struct region *region)
{
    if (region == NULL)
        return true;
    if (resource->type > FROM_MIPMAPPED)
        return false;
    const struct array *array = resource->array;
    return array->format.block == 1 && region->width == array->shape.width &&
           region->height == array->shape.height && region->depth == array->shape.depth &&
           region->first_level <= region->last_level && region->last_level < array->levels;
}

static bool surface_valid(const struct resource *resource)
{
    return resource->type == FROM_ARRAY && (resource->array->shape.flags & ARRAY_SURFACE) != 0;
}

static CUresult create(uint64_t *out, const struct view *wanted, const struct region *region)
{
    struct driver *driver;
    struct context *context;
    CUresult result = driver_context(&driver, &context);
    struct view *view = result == CUDA_SUCCESS ? malloc(sizeof *view) : NULL;
    if (view == NULL)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    *view = *wanted;
    view->number = driver_number(driver);
    pthread_mutex_lock(&driver->mutex);
    bool valid = resource_valid(driver, &view->resource) && region_valid(&view->resource, region) &&
                 (!view->surface || surface_valid(&view->resource));
    if (valid) {
        view->next = driver->views;
        driver->views = view;
        *out = view->number;
    } else {
        free(view);
    }
    pthread_mutex_unlock(&driver->mutex);
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult destroy(uint64_t number, bool surface)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver->mutex);
    struct view *view = find(driver, number, surface);
    for (struct view **place = &driver->views; view != NULL; place = &(*place)->next)
        if (*place == view) {
            *place = view->next;
            free(view);
            break;
        }
    pthread_mutex_unlock(&driver->mutex);
    return view != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A copy of what is known of an object, for a function that writes to `out`. */
static CUresult look(const void *out, uint64_t number, bool surface, struct view *found)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver->mutex);
    const struct view *view = find(driver, number, surface);
    if (view != NULL)
        *found = *view;
    pthread_mutex_unlock(&driver->mutex);
    return view != NULL && out != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuTexObjectCreate(uint64_t *out, const struct resource *resource,
                               const struct sampling *sampling, const struct region *region)
{
    if (out == NULL || resource == NULL || sampling == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct view view = {.resource = *resource, .sampling = *sampling, .restricted = region != NULL};
    if (region != NULL)
        view.region = *region;
    return create(out, &view, region);
}

API CUresult cuTexObjectDestroy(uint64_t texture)
{
    return destroy(texture, false);
}

API CUresult cuTexObjectGetResourceDesc(struct resource *out, uint64_t texture)
{
    struct view view;
    CUresult result = look(out, texture, false, &view);
    if (result == CUDA_SUCCESS)
        *out = view.resource;
    return result;
}

API CUresult cuTexObjectGetTextureDesc(struct sampling *out, uint64_t texture)
{
    struct view view;
    CUresult result = look(out, texture, false, &view);
    if (result == CUDA_SUCCESS)
        *out = view.sampling;
    return result;
}

/* Of one that was made without: an error, as documented. */
API CUresult cuTexObjectGetResourceViewDesc(struct region *out, uint64_t texture)
{
    struct view view;
    CUresult result = look(out, texture, false, &view);
    if (result == CUDA_SUCCESS && !view.restricted)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *out = view.region;
    return result;
}

API CUresult cuSurfObjectCreate(uint64_t *out, const struct resource *resource)
{
    if (out == NULL || resource == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return create(out, &(struct view){.resource = *resource, .surface = true}, NULL);
}

API CUresult cuSurfObjectDestroy(uint64_t surface)
{
    return destroy(surface, true);
}

API CUresult cuSurfObjectGetResourceDesc(struct resource *out, uint64_t surface)
{
    struct view view;
    CUresult result = look(out, surface, true, &view);
    if (result == CUDA_SUCCESS)
        *out = view.resource;
    return result;
}

API CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *elements, int format, unsigned channels,
                                                CUdevice device)
{
    struct driver *driver;
    const struct sim_gpu *gpu;
    struct array_format found;
    CUresult result = driver_device(device, &driver, &gpu);
    if (result != CUDA_SUCCESS)
        return result;
    if (elements == NULL || !array_format((unsigned)format, channels, &found))
        return CUDA_ERROR_INVALID_VALUE;
    *elements = LINEAR_ELEMENTS;
    return CUDA_SUCCESS;
}
