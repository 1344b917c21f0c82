/* How much memory an array will take at most, computed from its descriptor alone.
 *
 * For where the driver cannot be asked: before 11.6, and for descriptors it takes no deferred
 * mapping for. A driver lays arrays out in tiles and says nowhere how, so this is an upper bound,
 * not a figure: an array may be charged more than it takes, never less.
 *
 * Pure. Any thread.
 */
#ifndef SHIM_CORE_MEMORY_ARRAY_SIZE_H
#define SHIM_CORE_MEMORY_ARRAY_SIZE_H

#ifndef VCUDA_CDEF
#include <stdint.h>
#endif

/* A descriptor, of whatever form. An extent the array lacks is 0; of layered arrays and cubemaps
 * the depth is the number of layers. */
struct array_shape {
    uint64_t width, height, depth; /* elements */
    uint32_t format;               /* CU_AD_FORMAT_* */
    uint32_t channels;
    uint32_t flags;  /* CUDA_ARRAY3D_* */
    uint32_t levels; /* asked for; 1 for what is not mipmapped */
};

/* Bytes; 0 for an array that gets its memory later, UINT64_MAX for more than can be. */
uint64_t array_size(const struct array_shape *shape);

#endif
