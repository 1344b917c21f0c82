/* Moving bytes. Since kernels compute nothing, the bytes of an asynchronous copy move at once; its
 * stream gets the piece of work. Synchronous ones are work of the legacy stream: copies to the host
 * are waited for, and those from it unless they are so small that a driver stages them; those
 * within a device are not. */
#ifndef SIM_CUDA_COPY_TRANSFER_H
#define SIM_CUDA_COPY_TRANSFER_H

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
