/* Fills, and copies inside of a GPU: the time they take is paid for as that of a launch is.
 *
 * Their hooks are written by the generator, from rows of kind `work` whose last column says, with
 * the words below, what a call does. All of one kind and about one size cost alike; the small ones,
 * which cost about as much as an empty kernel, are of one kind together.
 *
 * Copies from and to the host's memory, or another GPU's, run beside the SMs and are free. Of
 * blocks at unified addresses the driver is asked where they are. Of cuMemcpy and batches it is
 * not, and they are free: asking would cost more than most of them take.
 */
#ifndef SHIM_CUDA_TIME_WORK_H
#define SHIM_CUDA_TIME_WORK_H

#include "cuda/time/throttle.h"

enum {
    WORK_SMALL = 256 << 10,  /* bytes */
    WORK_SMALL_KIND = 1,     /* stands for a size */
    WORK_ROWS_MATTER = 4096, /* shorter ones are slower to go through */
};

/* Stand for the function that is launched; no function of the driver has such an address. */
enum work_kind { WORK_FILL = 1, WORK_COPY };

/* bytes: 0 if there is nothing to pay for. row: of so many, one after another. */
struct work {
    enum work_kind kind;
    uint64_t bytes;
    uint64_t row;
};

static inline struct work work_rows(enum work_kind kind, uint64_t row, uint64_t height,
                                    uint64_t depth)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(row, height, &bytes) || __builtin_mul_overflow(bytes, depth, &bytes))
        bytes = 0; /* more than there is: the driver will say so */
    return (struct work){kind, bytes, row};
}

static inline struct work work_fill(uint64_t element, uint64_t width, uint64_t height)
{
    uint64_t row;
    return work_rows(WORK_FILL, __builtin_mul_overflow(element, width, &row) ? 0 : row, height, 1);
}

static inline struct work work_copy(uint64_t bytes)
{
    return work_rows(WORK_COPY, bytes, 1, 1);
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
    ((copy) != NULL && work_on_gpu((copy)->srcMemoryType, (copy)->srcDevice) &&                    \
             work_on_gpu((copy)->dstMemoryType, (copy)->dstDevice)                                 \
         ? work_rows(WORK_COPY, (copy)->WidthInBytes, (copy)->Height, depth)                       \
         : (struct work){WORK_COPY, 0, 0})
#define WORK_COPY_2D(copy) WORK_BLOCK(copy, 1)
#define WORK_COPY_3D(copy) WORK_BLOCK(copy, (copy)->Depth)

static inline struct work work_copy_peer(CUcontext from, CUcontext to, uint64_t bytes)
{
    return work_copy(from == to ? bytes : 0);
}

static inline struct work work_copy_3d_peer(const CUDA_MEMCPY3D_PEER *copy)
{
    return copy != NULL && copy->srcContext == copy->dstContext ? WORK_COPY_3D(copy) : work_copy(0);
}

/* As a launch: kinds of rows differ by powers of two. */
static inline struct launch work_launch(struct work work, CUstream stream)
{
    bool small = work.bytes < WORK_SMALL;
    return (struct launch){
        .function = (CUfunction)(uintptr_t)work.kind,
        .blocks = small ? WORK_SMALL_KIND : work.bytes,
        .threads = small || work.row >= WORK_ROWS_MATTER ? 0 : __builtin_clzll(work.row),
        .stream = stream,
    };
}

#endif
