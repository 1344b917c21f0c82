/* Moving bytes. Copies take no GPU time yet; synchronous ones wait for the work before them. */
#ifndef SIM_CUDA_TRANSFER_H
#define SIM_CUDA_TRANSFER_H

#include "cuda/driver.h"

/* Which side of a copy must be device memory of this process. */
enum side { ANYWHERE, ON_DEVICE };

struct transfer {
    CUdeviceptr to;
    CUdeviceptr from;
    size_t bytes;
    enum side to_side;
    enum side from_side;
};

#endif
