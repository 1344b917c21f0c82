/* The launches that came before cuLaunchKernel: the shape of a block is the function's. It is not
 * known here, and need not be: what is learnt is learnt of the function as it is set. */
#include "cuda/launch/shape.h"
#include "cuda/time/throttle.h"

static struct launch launch_of(CUfunction function, int grid_x, int grid_y, CUstream stream)
{
    return (struct launch){
        .function = function,
        .blocks = launch_product((unsigned int)grid_x, (unsigned int)grid_y, 1),
        .stream = stream,
    };
}

CUresult cuLaunch(CUfunction function)
{
    if (throttle_passes(function))
        return REAL(cuLaunch)(function);
    struct launch launch = launch_of(function, 1, 1, NULL);
    CUresult result = throttle_begin(&launch);
    return result != CUDA_SUCCESS ? result : throttle_end(&launch, REAL(cuLaunch)(function));
}

CUresult cuLaunchGrid(CUfunction function, int grid_x, int grid_y)
{
    if (throttle_passes(function))
        return REAL(cuLaunchGrid)(function, grid_x, grid_y);
    struct launch launch = launch_of(function, grid_x, grid_y, NULL);
    CUresult result = throttle_begin(&launch);
    if (result != CUDA_SUCCESS)
        return result;
    return throttle_end(&launch, REAL(cuLaunchGrid)(function, grid_x, grid_y));
}

CUresult cuLaunchGridAsync(CUfunction function, int grid_x, int grid_y, CUstream stream)
{
    if (throttle_passes(function))
        return REAL(cuLaunchGridAsync)(function, grid_x, grid_y, stream);
    struct launch launch = launch_of(function, grid_x, grid_y, stream);
    CUresult result = throttle_begin(&launch);
    if (result != CUDA_SUCCESS)
        return result;
    return throttle_end(&launch, REAL(cuLaunchGridAsync)(function, grid_x, grid_y, stream));
}
