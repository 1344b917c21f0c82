#include "cuda/array/array.h"
#include "cuda/memory/taken.h"
#include <stdlib.h>
#include <sys/mman.h>

static struct array *find(struct array *list, const struct array *wanted)
{
    for (struct array *array = list; array != NULL; array = array->next) {
        struct array *part = find(array->parts, wanted);
        if (array == wanted || part != NULL)
            return part != NULL ? part : array;
    }
    return NULL;
}

bool array_known(const struct driver *driver, const struct array *array, bool mipmapped)
{
    const struct array *found = find(driver->arrays, array);
    return found != NULL && found->mipmapped == mipmapped;
}

CUresult array_look(struct array *handle, bool mipmapped, struct array *out)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver->mutex);
    bool known = array_known(driver, handle, mipmapped);
    if (known)
        *out = *handle;
    pthread_mutex_unlock(&driver->mutex);
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

struct array *array_part(struct array *whole, unsigned number, const struct array_shape *shape)
{
    for (struct array *part = whole->parts; part != NULL; part = part->next)
        if (part->part == number)
            return part;
    struct array *part = calloc(1, sizeof *part);
    if (part == NULL)
        return NULL;
    *part = (struct array){.next = whole->parts,
                           .whole = whole,
                           .context = whole->context,
                           .shape = *shape,
                           .levels = 1,
                           .part = number};
    array_format(shape->format, shape->channels, &part->format);
    whole->parts = part;
    return part;
}

static uint64_t taken_at_creation(const struct array *array)
{
    if ((array->shape.flags & (ARRAY_SPARSE | ARRAY_DEFERRED)) != 0)
        return 0;
    return array_bytes(&array->shape, &array->format, array->levels);
}

static CUresult describe(const struct array_shape *shape, bool mipmapped, unsigned levels,
                         struct array *out)
{
    *out = (struct array){.shape = *shape, .mipmapped = mipmapped, .levels = 1};
    if (!array_shape_valid(shape, &out->format) || (mipmapped && out->format.planes > 1))
        return CUDA_ERROR_INVALID_VALUE;
    if (mipmapped)
        out->levels = array_levels(shape, levels);
    out->bytes = taken_at_creation(out);
    return CUDA_SUCCESS;
}

/* driver->mutex is held. */
static CUresult enter(struct driver *driver, const struct array *described, struct array **out)
{
    struct array *array = malloc(sizeof *array);
    if (array == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *array = *described;
    CUresult result =
        taken_begin(driver, array->context, MEMORY_ARRAY, array->bytes, &array->taken);
    if (result != CUDA_SUCCESS) {
        free(array);
        return result;
    }
    array->next = driver->arrays;
    driver->arrays = array;
    *out = array;
    return CUDA_SUCCESS;
}

CUresult array_create(const struct array_shape *shape, bool mipmapped, unsigned levels,
                      struct array **out)
{
    struct driver *driver;
    struct context *context;
    struct array described;
    CUresult result = driver_context(&driver, &context);
    if (result == CUDA_SUCCESS)
        result = describe(shape, mipmapped, levels, &described);
    if (result != CUDA_SUCCESS)
        return result;
    described.context = context;
    pthread_mutex_lock(&driver->mutex);
    result = enter(driver, &described, out);
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

static void discard(struct array *array)
{
    for (struct array *next, *part = array->parts; part != NULL; part = next) {
        next = part->next;
        discard(part);
    }
    if (array->contents != NULL)
        munmap(array->contents, array->capacity);
    free(array);
}

/* Out of the list, its memory given back. */
static void remove_at(struct driver *driver, struct array **place)
{
    struct array *gone = *place;
    *place = gone->next;
    taken_end(driver, &gone->taken);
    discard(gone);
}

CUresult array_destroy(struct array *array, bool mipmapped)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver->mutex);
    struct array **place = &driver->arrays;
    while (*place != NULL && *place != array)
        place = &(*place)->next;
    bool found = *place != NULL && array->mipmapped == mipmapped;
    if (found)
        remove_at(driver, place);
    pthread_mutex_unlock(&driver->mutex);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void arrays_free_all(struct driver *driver, const struct context *context)
{
    struct array **place = &driver->arrays;
    while (*place != NULL)
        if ((*place)->context == context)
            remove_at(driver, place);
        else
            place = &(*place)->next;
}
