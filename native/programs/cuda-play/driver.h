/* The CUDA driver as a program finds it: libcuda.so.1 by name, functions by cuGetProcAddress_v2. */
#ifndef PROGRAMS_CUDA_PLAY_DRIVER_H
#define PROGRAMS_CUDA_PLAY_DRIVER_H

#include <stddef.h>
#include <stdint.h>

enum { CUDA_SUCCESS = 0, CUDA_ERROR_OUT_OF_MEMORY = 2 };

typedef uint64_t device_address;

/* Every function used, once: its name for cuGetProcAddress, the CUDA version that means the variant
 * used here, its parameters. */
#define DRIVER_FUNCTIONS(FUNCTION)                                                                 \
    FUNCTION(cuInit, 2000, (unsigned flags))                                                       \
    FUNCTION(cuGetErrorName, 6000, (int code, const char **name))                                  \
    FUNCTION(cuDriverGetVersion, 2020, (int *version))                                             \
    FUNCTION(cuDeviceGetCount, 2000, (int *count))                                                 \
    FUNCTION(cuDeviceGet, 2000, (int *device, int ordinal))                                        \
    FUNCTION(cuDeviceGetName, 2000, (char *name, int size, int device))                            \
    FUNCTION(cuDeviceGetUuid, 9020, (unsigned char uuid[16], int device))                          \
    FUNCTION(cuDeviceTotalMem, 3020, (size_t *bytes, int device))                                  \
    FUNCTION(cuDevicePrimaryCtxRetain, 7000, (void **context, int device))                         \
    FUNCTION(cuDevicePrimaryCtxRelease, 11000, (int device))                                       \
    FUNCTION(cuCtxSetCurrent, 4000, (void *context))                                               \
    FUNCTION(cuCtxSynchronize, 2000, (void))                                                       \
    FUNCTION(cuMemAlloc, 3020, (device_address * address, size_t bytes))                           \
    FUNCTION(cuMemFree, 3020, (device_address address))                                            \
    FUNCTION(cuMemGetInfo, 3020, (size_t *available, size_t *total))                               \
    FUNCTION(cuModuleLoadData, 2000, (void **module, const void *image))                           \
    FUNCTION(cuModuleGetFunction, 2000, (void **function, void *module, const char *name))         \
    FUNCTION(cuLaunchKernel, 4000,                                                                 \
             (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,     \
              unsigned bz, unsigned shared, void *stream, void **parameters, void **extra))        \
    FUNCTION(cuEventCreate, 2000, (void **event, unsigned flags))                                  \
    FUNCTION(cuEventRecord, 2000, (void *event, void *stream))                                     \
    FUNCTION(cuEventSynchronize, 2000, (void *event))

#define DECLARE(name, version, parameters) extern int(*name) parameters;
DRIVER_FUNCTIONS(DECLARE)
#undef DECLARE

/* Find the driver and initialise it. */
void driver_load(void);

/* Make the primary context of a device current. */
void driver_use(int ordinal);

/* End the program with one line and status 1 unless `code` is CUDA_SUCCESS. */
void driver_check(int code, const char *what);

/* The name of a result, such as CUDA_ERROR_OUT_OF_MEMORY. */
const char *driver_error_name(int code);

#endif
