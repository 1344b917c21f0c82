/* How large a launch is, from what the program says of its grid and blocks. */
#ifndef SHIM_CUDA_LAUNCH_SHAPE_H
#define SHIM_CUDA_LAUNCH_SHAPE_H

#include <stdint.h>

/* 2^31 * 2^16 * 2^16 fits; more than a grid may have saturates. */
static inline uint64_t launch_product(unsigned int x, unsigned int y, unsigned int z)
{
    uint64_t result;
    return __builtin_mul_overflow((uint64_t)x * y, z, &result) ? UINT64_MAX : result;
}

#endif
