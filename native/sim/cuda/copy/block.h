/* Copies of blocks of bytes, between memory of the host, of devices, and arrays. */
#ifndef SIM_CUDA_COPY_BLOCK_H
#define SIM_CUDA_COPY_BLOCK_H

#include "cuda/graph/api.h"

enum { BLOCK_HOST = 1, BLOCK_DEVICE, BLOCK_ARRAY, BLOCK_UNIFIED };

CUresult block_copy(struct copy_params params);
CUresult block_copy_async(struct copy_params params, CUstream stream);

#endif
