/* What a function says of itself: what its cubin says, and plausible constants where it was loaded
 * from anything else. */
#include "cuda/module/module.h"
#include <string.h>

#define DEFAULT_KERNEL_NS UINT64_C(10000)

enum attribute {
    MAX_THREADS_PER_BLOCK = 0,
    STATIC_SHARED = 1,
    CONSTANTS = 2,
    LOCAL = 3,
    REGISTERS = 4,
    PTX_VERSION = 5,
    BINARY_VERSION = 6,
    MAX_DYNAMIC_SHARED = 8,
    PREFERRED_CARVEOUT = 9,
    LAST_ATTRIBUTE = 15,
};

enum {
    THREADS_PER_BLOCK = 1024,
    SHARED_PER_BLOCK = 49152,
    BLOCKS_PER_SM = 32,
    USUAL_REGISTERS = 32,
    REGISTERS_PER_BLOCK = 65536,
    WARP = 32,
    REGISTERS_STEP = 256, /* a warp gets its registers in steps */
};

static bool is_function(const struct function *function)
{
    return function != NULL && function->kind == FUNCTION;
}

static int registers_of(const struct function *function)
{
    return function->needs.registers > 0 ? (int)function->needs.registers : USUAL_REGISTERS;
}

/* As many as there are registers for, in whole warps, and no more than the program declared. */
static int threads_of(const struct function *function)
{
    int warp = (registers_of(function) * WARP + REGISTERS_STEP - 1) / REGISTERS_STEP;
    int threads = REGISTERS_PER_BLOCK / (warp * REGISTERS_STEP) * WARP;
    int declared = (int)function->needs.max_threads;
    if (threads > THREADS_PER_BLOCK)
        threads = THREADS_PER_BLOCK;
    return declared > 0 && declared < threads ? declared : threads;
}

/* Static and dynamic together fill a block's; a program may ask for more. */
static int dynamic_of(const struct function *function)
{
    if (function->dynamic_shared > 0)
        return function->dynamic_shared;
    return SHARED_PER_BLOCK - (int)function->needs.shared;
}

static CUresult function_fits(const struct function *function, uint64_t threads, unsigned shared)
{
    if (threads > (uint64_t)threads_of(function))
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    return (int64_t)shared > dynamic_of(function) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

enum { BLOCK_Z = 64, GRID_Y_Z = 65535, GRID_X = INT32_MAX };

/* `extra`: pairs of a tag and a value. */
static const void *buffer_in(void **extra)
{
    static const uintptr_t END = 0, BUFFER = 1;
    for (; extra != NULL && (uintptr_t)extra[0] != END; extra += 2)
        if ((uintptr_t)extra[0] == BUFFER)
            return extra[1];
    return NULL;
}

CUresult launch_duration(const struct function *function, void **parameters, void **extra,
                         uint64_t *duration_ns)
{
    *duration_ns = DEFAULT_KERNEL_NS;
    if (!function->spins && !function->jumps)
        return CUDA_SUCCESS;
    const void *first = parameters != NULL ? parameters[function->jumps] : buffer_in(extra);
    if (first == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(duration_ns, first, sizeof *duration_ns);
    return CUDA_SUCCESS;
}

static bool valid_shape(const CUlaunchConfig *shape)
{
    uint64_t threads = (uint64_t)shape->blockDimX * shape->blockDimY;
    return shape->gridDimX > 0 && shape->gridDimY > 0 && shape->gridDimZ > 0 && threads > 0 &&
           shape->blockDimZ > 0 && threads <= THREADS_PER_BLOCK &&
           threads * shape->blockDimZ <= THREADS_PER_BLOCK && shape->blockDimZ <= BLOCK_Z &&
           shape->gridDimX <= GRID_X && shape->gridDimY <= GRID_Y_Z && shape->gridDimZ <= GRID_Y_Z;
}

CUresult launch_check(const CUlaunchConfig *shape, const struct function *function)
{
    if (shape == NULL || !valid_shape(shape))
        return CUDA_ERROR_INVALID_VALUE;
    if (function == NULL || function->kind != FUNCTION)
        return CUDA_ERROR_INVALID_HANDLE;
    uint64_t threads = (uint64_t)shape->blockDimX * shape->blockDimY * shape->blockDimZ;
    return function_fits(function, threads, shape->sharedMemBytes);
}

static int value_of(const struct function *function, int attribute)
{
    switch (attribute) {
    case MAX_THREADS_PER_BLOCK:
        return threads_of(function);
    case STATIC_SHARED:
        return (int)function->needs.shared;
    case CONSTANTS:
        return (int)function->needs.constants;
    case LOCAL:
        return (int)function->needs.local;
    case REGISTERS:
        return registers_of(function);
    case PTX_VERSION:
    case BINARY_VERSION:
        return 80;
    case MAX_DYNAMIC_SHARED:
        return dynamic_of(function);
    case PREFERRED_CARVEOUT:
        return function->carveout;
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
    if (attribute == PREFERRED_CARVEOUT)
        function->carveout = value;
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

API CUresult cuKernelSetCacheConfig(CUkernel kernel, int config, CUdevice device)
{
    struct driver *driver;
    const struct sim_gpu *gpu;
    CUresult result = driver_device(device, &driver, &gpu);
    return result == CUDA_SUCCESS ? cuFuncSetCacheConfig(kernel, config) : result;
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
    if (out == NULL || function == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_function(function))
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
