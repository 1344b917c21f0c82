#include "cuda/array/contents.h"
#include <sys/mman.h>

static size_t at_least_1(size_t extent)
{
    return extent > 0 ? extent : 1;
}

static size_t row_bytes(const struct array *array)
{
    return array->shape.width * array->format.plane[0].bytes;
}

static bool within(size_t start, size_t extent, size_t whole)
{
    return start <= whole && extent <= whole - start;
}

CUresult array_covers(const struct copy_side *side, const struct copy_params *params)
{
    struct array array;
    CUresult result = array_look(side->array, false, &array);
    if (result != CUDA_SUCCESS)
        return result;
    if (array.format.planes > 1 || array.format.block > 1)
        return CUDA_ERROR_NOT_SUPPORTED;
    return within(side->x_bytes, params->width_bytes, row_bytes(&array)) &&
                   within(side->y, params->height, at_least_1(array.shape.height)) &&
                   within(side->z, params->depth, at_least_1(array.shape.depth))
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

/* driver->mutex is held. */
static char *contents(struct array *array)
{
    if (array->contents != NULL)
        return array->contents;
    size_t rows = at_least_1(array->shape.height) * at_least_1(array->shape.depth);
    void *made = mmap(NULL, row_bytes(array) * rows, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED)
        return NULL;
    array->contents = made;
    array->capacity = row_bytes(array) * rows;
    return made;
}

void *array_row(struct driver *driver, const struct copy_side *side, size_t y, size_t z)
{
    struct array *array = side->array;
    pthread_mutex_lock(&driver->mutex);
    char *start = contents(array);
    size_t row = (side->z + z) * at_least_1(array->shape.height) + side->y + y;
    size_t offset = row * row_bytes(array) + side->x_bytes;
    pthread_mutex_unlock(&driver->mutex);
    return start != NULL ? start + offset : NULL;
}

int array_device(const struct copy_side *side)
{
    const struct array *array = side->array;
    return array->context->device;
}
