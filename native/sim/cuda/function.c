/* What a function says of itself. Registers and sizes are plausible constants, not the code's. */
#include "cuda/module.h"

enum attribute {
    MAX_THREADS_PER_BLOCK = 0,
    REGISTERS = 4,
    PTX_VERSION = 5,
    BINARY_VERSION = 6,
    MAX_DYNAMIC_SHARED = 8,
    PREFERRED_CARVEOUT = 9,
    LAST_ATTRIBUTE = 15,
};

enum { THREADS_PER_BLOCK = 1024, DYNAMIC_SHARED = 49152, BLOCKS_PER_SM = 32 };

static bool is_function(const struct function *function)
{
    return function != NULL && function->kind == FUNCTION;
}

static int value_of(const struct function *function, int attribute)
{
    switch (attribute) {
    case MAX_THREADS_PER_BLOCK:
        return THREADS_PER_BLOCK;
    case REGISTERS:
        return 32;
    case PTX_VERSION:
    case BINARY_VERSION:
        return 80;
    case MAX_DYNAMIC_SHARED:
        return function->dynamic_shared > 0 ? function->dynamic_shared : DYNAMIC_SHARED;
    case PREFERRED_CARVEOUT:
        return -1;
    default:
        return 0;
    }
}

API CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_function(function))
        return CUDA_ERROR_INVALID_HANDLE;
    if (value == NULL || attribute < 0 || attribute > LAST_ATTRIBUTE)
        return CUDA_ERROR_INVALID_VALUE;
    *value = value_of(function, attribute);
    return CUDA_SUCCESS;
}

API CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_function(function))
        return CUDA_ERROR_INVALID_HANDLE;
    if (attribute == MAX_DYNAMIC_SHARED)
        function->dynamic_shared = value;
    return CUDA_SUCCESS;
}

API CUresult cuKernelGetAttribute(int *value, int attribute, CUkernel kernel, CUdevice device)
{
    struct driver *driver;
    const struct sim_gpu *gpu;
    CUresult result = driver_device(device, &driver, &gpu);
    return result == CUDA_SUCCESS ? cuFuncGetAttribute(value, attribute, kernel) : result;
}

API CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice device)
{
    struct driver *driver;
    const struct sim_gpu *gpu;
    CUresult result = driver_device(device, &driver, &gpu);
    return result == CUDA_SUCCESS ? cuFuncSetAttribute(kernel, attribute, value) : result;
}

API CUresult cuFuncSetCacheConfig(CUfunction function, int config)
{
    (void)config;
    return is_function(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API CUresult cuFuncGetModule(CUmodule *out, CUfunction function)
{
    if (out == NULL || !is_function(function))
        return CUDA_ERROR_INVALID_HANDLE;
    *out = function->module;
    return CUDA_SUCCESS;
}

API CUresult cuFuncGetName(const char **out, CUfunction function)
{
    if (out == NULL || !is_function(function))
        return CUDA_ERROR_INVALID_HANDLE;
    *out = function->name;
    return CUDA_SUCCESS;
}
ALSO(cuFuncGetName, cuKernelGetName);

API CUresult cuFuncLoad(CUfunction function)
{
    return is_function(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API CUresult cuFuncIsLoaded(int *state, CUfunction function)
{
    enum { LOADED = 1 };
    if (state == NULL || !is_function(function))
        return CUDA_ERROR_INVALID_HANDLE;
    *state = LOADED;
    return CUDA_SUCCESS;
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function,
                                                         int threads, size_t dynamic_shared)
{
    struct driver *driver;
    struct context *context;
    CUresult result = driver_context(&driver, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (blocks == NULL || !is_function(function) || threads <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    (void)dynamic_shared;
    const struct sim_gpu *gpu = &driver->state->machine.gpus[driver->gpus[context->device]];
    int fitting = (int)gpu->threads_per_sm / threads;
    *blocks = fitting < BLOCKS_PER_SM ? fitting : BLOCKS_PER_SM;
    return CUDA_SUCCESS;
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function,
                                                                  int threads,
                                                                  size_t dynamic_shared,
                                                                  unsigned flags)
{
    (void)flags;
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, dynamic_shared);
}
