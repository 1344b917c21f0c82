/* The launches that came before cuLaunchKernel. */
#include "cuda/time/throttle.h"

CUresult cuLaunch(CUfunction function)
{
    if (throttle_passes(function) || throttle_credited(function, NULL))
        return REAL(cuLaunch)(function);
    struct launch launch = {.function = function};
    CUresult result = throttle_begin(&launch);
    return result != CUDA_SUCCESS ? result : throttle_end(&launch, REAL(cuLaunch)(function));
}

CUresult cuLaunchGrid(CUfunction function, int grid_x, int grid_y)
{
    if (throttle_passes(function) || throttle_credited(function, NULL))
        return REAL(cuLaunchGrid)(function, grid_x, grid_y);
    struct launch launch = {.function = function};
    CUresult result = throttle_begin(&launch);
    if (result != CUDA_SUCCESS)
        return result;
    return throttle_end(&launch, REAL(cuLaunchGrid)(function, grid_x, grid_y));
}

CUresult cuLaunchGridAsync(CUfunction function, int grid_x, int grid_y, CUstream stream)
{
    if (throttle_passes(function) || throttle_credited(function, stream))
        return REAL(cuLaunchGridAsync)(function, grid_x, grid_y, stream);
    struct launch launch = {.function = function, .stream = stream};
    CUresult result = throttle_begin(&launch);
    if (result != CUDA_SUCCESS)
        return result;
    return throttle_end(&launch, REAL(cuLaunchGridAsync)(function, grid_x, grid_y, stream));
}
