/* Every way to launch a kernel that the table names.
 *
 * What is exported only asks whether there is anything to do. Both ways on from there take the same
 * arguments, so that the compiler can jump instead of calling and passing eleven of them anew.
 */
#include "cuda/time/throttle.h"

static NOT_INLINE CUresult limited(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared, CUstream stream,
                                   void **parameters, void **extra)
{
    if (throttle_credited(function, stream))
        return REAL(cuLaunchKernel)(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                    shared, stream, parameters, extra);
    struct launch launch = {.function = function, .stream = stream};
    CUresult result = throttle_begin(&launch);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuLaunchKernel)(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                  shared, stream, parameters, extra);
    return throttle_end(&launch, result);
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared, CUstream stream,
                        void **parameters, void **extra)
{
    if (throttle_passes(function))
        return REAL(cuLaunchKernel)(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                    shared, stream, parameters, extra);
    return limited(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream,
                   parameters, extra);
}

static NOT_INLINE CUresult limited_ptsz(CUfunction function, unsigned int grid_x,
                                        unsigned int grid_y, unsigned int grid_z,
                                        unsigned int block_x, unsigned int block_y,
                                        unsigned int block_z, unsigned int shared, CUstream stream,
                                        void **parameters, void **extra)
{
    if (throttle_credited(function, process_own_stream(stream)))
        return REAL(cuLaunchKernel_ptsz)(function, grid_x, grid_y, grid_z, block_x, block_y,
                                         block_z, shared, stream, parameters, extra);
    struct launch launch = {.function = function, .stream = process_own_stream(stream)};
    CUresult result = throttle_begin(&launch);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuLaunchKernel_ptsz)(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                       shared, stream, parameters, extra);
    return throttle_end(&launch, result);
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                             unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                             unsigned int block_z, unsigned int shared, CUstream stream,
                             void **parameters, void **extra)
{
    if (throttle_passes(function))
        return REAL(cuLaunchKernel_ptsz)(function, grid_x, grid_y, grid_z, block_x, block_y,
                                         block_z, shared, stream, parameters, extra);
    return limited_ptsz(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream,
                        parameters, extra);
}

static NOT_INLINE CUresult limited_ex(const CUlaunchConfig *config, CUfunction function,
                                      void **parameters, void **extra)
{
    if (throttle_credited(function, config->hStream))
        return REAL(cuLaunchKernelEx)(config, function, parameters, extra);
    struct launch launch = {.function = function, .stream = config->hStream};
    CUresult result = throttle_begin(&launch);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuLaunchKernelEx)(config, function, parameters, extra);
    return throttle_end(&launch, result);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters,
                          void **extra)
{
    if (config == NULL || throttle_passes(function))
        return REAL(cuLaunchKernelEx)(config, function, parameters, extra);
    return limited_ex(config, function, parameters, extra);
}

static NOT_INLINE CUresult limited_ex_ptsz(const CUlaunchConfig *config, CUfunction function,
                                           void **parameters, void **extra)
{
    if (throttle_credited(function, process_own_stream(config->hStream)))
        return REAL(cuLaunchKernelEx_ptsz)(config, function, parameters, extra);
    struct launch launch = {.function = function, .stream = process_own_stream(config->hStream)};
    CUresult result = throttle_begin(&launch);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuLaunchKernelEx_ptsz)(config, function, parameters, extra);
    return throttle_end(&launch, result);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **parameters,
                               void **extra)
{
    if (config == NULL || throttle_passes(function))
        return REAL(cuLaunchKernelEx_ptsz)(config, function, parameters, extra);
    return limited_ex_ptsz(config, function, parameters, extra);
}
