/* The CUDA driver as a program finds it: libcuda.so.1 by name, functions by their exported names.
 */
#ifndef PROGRAMS_CUDA_STORM_DRIVER_H
#define PROGRAMS_CUDA_STORM_DRIVER_H

#include <stddef.h>
#include <stdint.h>

enum { CUDA_SUCCESS = 0, CUDA_ERROR_OUT_OF_MEMORY = 2 };

typedef uint64_t device_address;
typedef uint64_t memory_handle;

/* Where physical memory is to be, and how: on a device, pinned. */
struct memory_properties {
    int type, handle_types, location_type, location;
    void *security;
    unsigned char flags[8];
};

_Static_assert(sizeof(struct memory_properties) == 32, "CUmemAllocationProp");

/* Of a memory pool: what is in it, and where. */
struct pool_properties {
    int type, handle_types, location_type, location;
    void *security;
    size_t most;
    unsigned char flags[56];
};

_Static_assert(sizeof(struct pool_properties) == 88, "CUmemPoolProps");

/* A node of a graph that allocates; `address` is set by the driver. */
struct allocation_node {
    struct pool_properties properties;
    const void *access;
    size_t access_count;
    size_t bytes;
    device_address address;
};

_Static_assert(sizeof(struct allocation_node) == 120, "CUDA_MEM_ALLOC_NODE_PARAMS");

/* Of arrays, in elements. */
struct array_shape {
    size_t width, height;
    int format;
    unsigned channels;
};

struct array_shape_3d {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};

_Static_assert(sizeof(struct array_shape) == 24, "CUDA_ARRAY_DESCRIPTOR");
_Static_assert(sizeof(struct array_shape_3d) == 40, "CUDA_ARRAY3D_DESCRIPTOR");

#define DRIVER_FUNCTIONS(FUNCTION)                                                                 \
    FUNCTION(cuInit, (unsigned flags))                                                             \
    FUNCTION(cuDeviceGet, (int *device, int ordinal))                                              \
    FUNCTION(cuDevicePrimaryCtxRetain, (void **context, int device))                               \
    FUNCTION(cuCtxSetCurrent, (void *context))                                                     \
    FUNCTION(cuMemGetInfo_v2, (size_t *available, size_t *total))                                  \
    FUNCTION(cuMemAlloc_v2, (device_address * address, size_t bytes))                              \
    FUNCTION(cuMemAllocManaged, (device_address * address, size_t bytes, unsigned flags))          \
    FUNCTION(cuMemAllocPitch_v2, (device_address * address, size_t *pitch, size_t width,           \
                                  size_t height, unsigned size))                                   \
    FUNCTION(cuMemFree_v2, (device_address address))                                               \
    FUNCTION(cuMemCreate, (memory_handle * handle, size_t bytes,                                   \
                           const struct memory_properties *properties, unsigned long long flags))  \
    FUNCTION(cuMemRelease, (memory_handle handle))                                                 \
    FUNCTION(cuMemAddressReserve, (device_address * address, size_t bytes, size_t alignment,       \
                                   device_address wish, unsigned long long flags))                 \
    FUNCTION(cuMemAddressFree, (device_address address, size_t bytes))                             \
    FUNCTION(cuMemMap, (device_address address, size_t bytes, size_t offset, memory_handle handle, \
                        unsigned long long flags))                                                 \
    FUNCTION(cuMemUnmap, (device_address address, size_t bytes))                                   \
    FUNCTION(cuMemAlloc, (unsigned *address, unsigned bytes))                                      \
    FUNCTION(cuMemAllocPitch,                                                                      \
             (unsigned *address, unsigned *pitch, unsigned width, unsigned height, unsigned size)) \
    FUNCTION(cuMemFree, (unsigned address))                                                        \
    FUNCTION(cuArrayCreate_v2, (void **array, const struct array_shape *shape))                    \
    FUNCTION(cuArray3DCreate_v2, (void **array, const struct array_shape_3d *shape))               \
    FUNCTION(cuArrayDestroy, (void *array))                                                        \
    FUNCTION(cuMipmappedArrayCreate,                                                               \
             (void **array, const struct array_shape_3d *shape, unsigned levels))                  \
    FUNCTION(cuMipmappedArrayDestroy, (void *array))                                               \
    FUNCTION(cuStreamSynchronize, (void *stream))                                                  \
    FUNCTION(cuMemAllocAsync, (device_address * address, size_t bytes, void *stream))              \
    FUNCTION(cuMemFreeAsync, (device_address address, void *stream))                               \
    FUNCTION(cuDeviceGetDefaultMemPool, (void **pool, int device))                                 \
    FUNCTION(cuMemPoolCreate, (void **pool, const struct pool_properties *properties))             \
    FUNCTION(cuMemPoolDestroy, (void *pool))                                                       \
    FUNCTION(cuMemPoolTrimTo, (void *pool, size_t keep))                                           \
    FUNCTION(cuMemAllocFromPoolAsync,                                                              \
             (device_address * address, size_t bytes, void *pool, void *stream))                   \
    FUNCTION(cuGraphCreate, (void **graph, unsigned flags))                                        \
    FUNCTION(cuGraphDestroy, (void *graph))                                                        \
    FUNCTION(cuGraphAddMemAllocNode, (void **node, void *graph, void *const *dependencies,         \
                                      size_t count, struct allocation_node *parameters))           \
    FUNCTION(cuGraphInstantiateWithFlags, (void **exec, void *graph, unsigned long long flags))    \
    FUNCTION(cuGraphLaunch, (void *exec, void *stream))                                            \
    FUNCTION(cuGraphExecDestroy, (void *exec))                                                     \
    FUNCTION(cuDeviceGraphMemTrim, (int device))                                                   \
    FUNCTION(cuCtxCreate_v2, (void **context, unsigned flags, int device))                         \
    FUNCTION(cuCtxPopCurrent_v2, (void **context))                                                 \
    FUNCTION(cuCtxDestroy_v2, (void *context))                                                     \
    FUNCTION(cuModuleLoadData, (void **module, const void *image))                                 \
    FUNCTION(cuModuleUnload, (void *module))

#define DECLARE(name, parameters) extern int(*name) parameters;
DRIVER_FUNCTIONS(DECLARE)
#undef DECLARE

/* Find the driver; functions it lacks stay NULL. Ends the program if there is none. */
void driver_load(void);

/* Initialise it and make the primary context of device 0 current. A CUDA result. */
int driver_begin(void **context);

#endif
