/* Fills, and copies inside of a GPU: they take turns as launches do.
 *
 * Their hooks are written by the generator, from rows of kind `work` whose last column says, with
 * the words below, whether a call takes GPU time.
 *
 * Copies from and to the host's memory, or another GPU's, run beside the SMs and are free. Of
 * blocks at unified addresses the driver is asked where they are. Of cuMemcpy and batches it is
 * not, and they are free: asking would cost more than most of them take.
 */
#ifndef SHIM_CUDA_TIME_WORK_H
#define SHIM_CUDA_TIME_WORK_H

#include "cuda/time/throttle.h"

static inline bool work_fill(uint64_t element, uint64_t width, uint64_t height)
{
    return element > 0 && width > 0 && height > 0;
}

static inline bool work_copy(uint64_t bytes)
{
    return bytes > 0;
}

/* The driver knows no memory of the host but what is registered with it. */
static inline bool work_on_gpu(int memory_type, CUdeviceptr address)
{
    int type = CU_MEMORYTYPE_HOST;
    if (memory_type != CU_MEMORYTYPE_UNIFIED)
        type = memory_type;
    else
        REAL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    return type >= CU_MEMORYTYPE_DEVICE && type <= CU_MEMORYTYPE_UNIFIED;
}

/* Of any struct that describes a copy of a block, of either binary interface. */
#define WORK_BLOCK(copy, depth)                                                                    \
    ((copy) != NULL && (copy)->WidthInBytes > 0 && (copy)->Height > 0 && (depth) > 0 &&            \
     work_on_gpu((copy)->srcMemoryType, (copy)->srcDevice) &&                                      \
     work_on_gpu((copy)->dstMemoryType, (copy)->dstDevice))
#define WORK_COPY_2D(copy) WORK_BLOCK(copy, 1)
#define WORK_COPY_3D(copy) WORK_BLOCK(copy, (copy)->Depth)

static inline bool work_copy_peer(CUcontext from, CUcontext to, uint64_t bytes)
{
    return from == to && work_copy(bytes);
}

static inline bool work_copy_3d_peer(const CUDA_MEMCPY3D_PEER *copy)
{
    return copy != NULL && copy->srcContext == copy->dstContext && WORK_COPY_3D(copy);
}

#endif
