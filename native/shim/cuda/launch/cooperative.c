/* Launches whose blocks may wait for one another. */
#include "cuda/time/throttle.h"

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared, CUstream stream,
                                   void **parameters)
{
    if (throttle_passes(function) || throttle_credited(function, stream))
        return REAL(cuLaunchCooperativeKernel)(function, grid_x, grid_y, grid_z, block_x, block_y,
                                               block_z, shared, stream, parameters);
    struct launch launch = {.function = function, .stream = stream};
    CUresult result = throttle_begin(&launch);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuLaunchCooperativeKernel)(function, grid_x, grid_y, grid_z, block_x, block_y,
                                             block_z, shared, stream, parameters);
    return throttle_end(&launch, result);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_x,
                                        unsigned int grid_y, unsigned int grid_z,
                                        unsigned int block_x, unsigned int block_y,
                                        unsigned int block_z, unsigned int shared, CUstream stream,
                                        void **parameters)
{
    if (throttle_passes(function) || throttle_credited(function, process_own_stream(stream)))
        return REAL(cuLaunchCooperativeKernel_ptsz)(function, grid_x, grid_y, grid_z, block_x,
                                                    block_y, block_z, shared, stream, parameters);
    struct launch launch = {.function = function, .stream = process_own_stream(stream)};
    CUresult result = throttle_begin(&launch);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuLaunchCooperativeKernel_ptsz)(function, grid_x, grid_y, grid_z, block_x,
                                                  block_y, block_z, shared, stream, parameters);
    return throttle_end(&launch, result);
}
