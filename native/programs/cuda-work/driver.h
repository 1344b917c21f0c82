/* The CUDA driver as a program finds it: libcuda.so.1 by name, functions by cuGetProcAddress_v2.
 *
 * Twice, as a program is compiled: for the legacy default stream, and for the one of each thread
 * (nvcc --default-stream per-thread), whose functions are other exports.
 */
#ifndef PROGRAMS_CUDA_WORK_DRIVER_H
#define PROGRAMS_CUDA_WORK_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CUDA_SUCCESS = 0,
    STREAM_NON_BLOCKING = 1,
    CAPTURE_RELAXED = 2,
    HOST_PORTABLE = 1,
    HOST_MAPPED = 2,
};

typedef uint64_t device_address;

struct launch_config {
    unsigned grid[3], block[3], shared;
    void *stream;
    void *attributes;
    unsigned attribute_count;
};

/* Every function used, once: its name for cuGetProcAddress and its parameters in CUDA 12. */
#define DRIVER_FUNCTIONS(FUNCTION)                                                                 \
    FUNCTION(cuInit, (unsigned flags))                                                             \
    FUNCTION(cuGetErrorName, (int code, const char **name))                                        \
    FUNCTION(cuDeviceGet, (int *device, int ordinal))                                              \
    FUNCTION(cuDeviceGetCount, (int *count))                                                       \
    FUNCTION(cuMemHostRegister, (void *memory, size_t bytes, unsigned flags))                      \
    FUNCTION(cuMemHostGetDevicePointer, (device_address * address, void *memory, unsigned flags))  \
    FUNCTION(cuDevicePrimaryCtxRetain, (void **context, int device))                               \
    FUNCTION(cuCtxSetCurrent, (void *context))                                                     \
    FUNCTION(cuCtxGetCurrent, (void **context))                                                    \
    FUNCTION(cuMemAlloc, (device_address * address, size_t bytes))                                 \
    FUNCTION(cuMemHostAlloc, (void **address, size_t bytes, unsigned flags))                       \
    FUNCTION(cuModuleLoadData, (void **module, const void *image))                                 \
    FUNCTION(cuModuleGetFunction, (void **function, void *module, const char *name))               \
    FUNCTION(cuLaunchKernel,                                                                       \
             (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,     \
              unsigned bz, unsigned shared, void *stream, void **parameters, void **extra))        \
    FUNCTION(cuLaunchCooperativeKernel,                                                            \
             (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,     \
              unsigned bz, unsigned shared, void *stream, void **parameters))                      \
    FUNCTION(cuLaunchKernelEx, (const struct launch_config *config, void *function,                \
                                void **parameters, void **extra))                                  \
    FUNCTION(cuMemsetD8Async,                                                                      \
             (device_address to, unsigned char value, size_t bytes, void *stream))                 \
    FUNCTION(cuMemcpyHtoDAsync, (device_address to, const void *from, size_t bytes, void *stream)) \
    FUNCTION(cuMemcpyDtoHAsync, (void *to, device_address from, size_t bytes, void *stream))       \
    FUNCTION(cuMemcpyDtoDAsync,                                                                    \
             (device_address to, device_address from, size_t bytes, void *stream))                 \
    FUNCTION(cuStreamCreate, (void **stream, unsigned flags))                                      \
    FUNCTION(cuStreamDestroy, (void *stream))                                                      \
    FUNCTION(cuStreamSynchronize, (void *stream))                                                  \
    FUNCTION(cuStreamBeginCapture, (void *stream, int mode))                                       \
    FUNCTION(cuStreamEndCapture, (void *stream, void **graph))                                     \
    FUNCTION(cuGraphInstantiateWithFlags, (void **executable, void *graph, uint64_t flags))        \
    FUNCTION(cuGraphDestroy, (void *graph))                                                        \
    FUNCTION(cuGraphLaunch, (void *executable, void *stream))                                      \
    FUNCTION(cuEventCreate, (void **event, unsigned flags))                                        \
    FUNCTION(cuEventRecord, (void *event, void *stream))                                           \
    FUNCTION(cuEventSynchronize, (void *event))

struct driver {
#define DECLARE(name, parameters) int(*name) parameters;
    DRIVER_FUNCTIONS(DECLARE)
#undef DECLARE
};

/* Find the driver, initialise it, and make the primary context of a device current. */
void driver_use(int ordinal);

/* The driver's functions, once it is in use. */
const struct driver *driver_functions(bool per_thread);

/* End the program with one line and status 1 unless `code` is CUDA_SUCCESS. */
void driver_check(int code, const char *what);

#endif
