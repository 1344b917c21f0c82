/* Arrays and mipmapped arrays of this process: opaque memory that only copies and textures reach.
 *
 * A level of a mipmapped array and a plane of one of several planes are arrays too, parts of the
 * whole: made when first asked for, the same one each time, gone with the whole. Memory is charged
 * for the whole, at creation; nothing for sparse arrays and those mapped later, which get theirs
 * when memory of the program is mapped to them.
 */
#ifndef SIM_CUDA_ARRAY_ARRAY_H
#define SIM_CUDA_ARRAY_ARRAY_H

#include "cuda/array/layout.h"
#include "cuda/driver.h"

struct array {
    struct array *next; /* in the list it is in: the driver's, or its whole's */
    struct array *parts;
    struct array *whole; /* NULL: not a part */
    struct context *context;
    struct array_shape shape;
    struct array_format format;
    bool mipmapped;
    unsigned levels;
    unsigned part;  /* number of the level or plane */
    uint64_t bytes; /* that it needs */
    struct taken taken;
    void *contents;  /* a mapping made for the first copy, rows without padding; NULL: all 0 */
    size_t capacity; /* of it */
};

/* Make one in the current context; takes driver->mutex. */
CUresult array_create(const struct array_shape *shape, bool mipmapped, unsigned levels,
                      struct array **out);
CUresult array_destroy(struct array *array, bool mipmapped);

/* Is this an array that exists, and of this kind? driver->mutex is held. */
bool array_known(const struct driver *driver, const struct array *array, bool mipmapped);

/* Copy what is at `handle` out; CUDA_ERROR_INVALID_HANDLE. Takes driver->mutex. */
CUresult array_look(struct array *handle, bool mipmapped, struct array *out);

/* The part with this number; driver->mutex is held. NULL without memory. */
struct array *array_part(struct array *whole, unsigned number, const struct array_shape *shape);

/* Free all of a context; driver->mutex is held. */
void arrays_free_all(struct driver *driver, const struct context *context);

#endif
