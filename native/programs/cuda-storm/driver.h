/* The CUDA driver as a program finds it: libcuda.so.1 by name, functions by their exported names.
 */
#ifndef STORM_DRIVER_H
#define STORM_DRIVER_H

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
    FUNCTION(cuMemUnmap, (device_address address, size_t bytes))

#define DECLARE(name, parameters) extern int(*name) parameters;
DRIVER_FUNCTIONS(DECLARE)
#undef DECLARE

/* Find the driver; functions it lacks stay NULL. Ends the program if there is none. */
void driver_load(void);

/* Initialise it and make the primary context of device 0 current. A CUDA result. */
int driver_begin(void **context);

#endif
