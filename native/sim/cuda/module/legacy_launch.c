/* The launches that came before cuLaunchKernel: a function has the shape of its blocks and its
 * parameters set, and is launched as it is then. */
#include "cuda/module/module.h"
#include "cuda/stream/queue.h"
#include <string.h>

API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                            CUstream stream, void **parameters, void **extra);

static CUresult of_function(const struct function *function)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    return function != NULL && function->kind == FUNCTION ? CUDA_SUCCESS
                                                          : CUDA_ERROR_INVALID_HANDLE;
}

API CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z)
{
    CUresult result = of_function(function);
    if (result != CUDA_SUCCESS)
        return result;
    if (x <= 0 || y <= 0 || z <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    function->set.block_x = (unsigned)x;
    function->set.block_y = (unsigned)y;
    function->set.block_z = (unsigned)z;
    return CUDA_SUCCESS;
}

API CUresult cuFuncSetSharedSize(CUfunction function, unsigned bytes)
{
    CUresult result = of_function(function);
    if (result == CUDA_SUCCESS)
        function->set.shared = bytes;
    return result;
}

API CUresult cuParamSetSize(CUfunction function, unsigned bytes)
{
    CUresult result = of_function(function);
    if (result != CUDA_SUCCESS)
        return result;
    if (bytes > sizeof function->set.parameters)
        return CUDA_ERROR_INVALID_VALUE;
    function->set.size = bytes;
    return CUDA_SUCCESS;
}

API CUresult cuParamSetv(CUfunction function, int offset, const void *value, unsigned bytes)
{
    CUresult result = of_function(function);
    if (result != CUDA_SUCCESS)
        return result;
    size_t room = sizeof function->set.parameters;
    if (offset < 0 || value == NULL || (size_t)offset > room || bytes > room - (size_t)offset)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(function->set.parameters + offset, value, bytes);
    return CUDA_SUCCESS;
}

API CUresult cuParamSeti(CUfunction function, int offset, unsigned value)
{
    return cuParamSetv(function, offset, &value, sizeof value);
}

API CUresult cuParamSetf(CUfunction function, int offset, float value)
{
    return cuParamSetv(function, offset, &value, sizeof value);
}

API CUresult cuLaunchGridAsync(CUfunction function, int grid_x, int grid_y, CUstream stream)
{
    CUresult result = of_function(function);
    if (result != CUDA_SUCCESS)
        return result;
    struct set_launch *set = &function->set;
    if (grid_x <= 0 || grid_y <= 0 || set->block_x == 0)
        return CUDA_ERROR_INVALID_VALUE;
    size_t size = set->size;
    void *extra[] = {(void *)1, set->parameters, (void *)2, &size, NULL};
    return cuLaunchKernel(function, (unsigned)grid_x, (unsigned)grid_y, 1, set->block_x,
                          set->block_y, set->block_z, set->shared, stream, NULL, extra);
}

API CUresult cuLaunchGrid(CUfunction function, int grid_x, int grid_y)
{
    return cuLaunchGridAsync(function, grid_x, grid_y, NULL);
}

API CUresult cuLaunch(CUfunction function)
{
    return cuLaunchGrid(function, 1, 1);
}
