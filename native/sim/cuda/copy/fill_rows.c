/* cuMemsetD2D*: rows of elements, so many bytes apart; and fills of the 32-bit API. */
#include "cuda/capture/capture.h"
#include "cuda/stream/host_call.h"

static bool valid(const struct fill_params *rows)
{
    uint64_t bytes;
    return !__builtin_mul_overflow((uint64_t)rows->width, (uint64_t)rows->element, &bytes) &&
           (rows->height <= 1 || rows->pitch >= bytes);
}

static CUresult fill_rows(struct fill_params rows, CUstream handle)
{
    struct driver *driver;
    struct stream *stream;
    struct node node;
    struct sim_task task;
    int device;
    CUresult result = queue_find(handle, &driver, &stream, &device);
    if (result == CUDA_SUCCESS)
        result = valid(&rows) ? node_of_fill(&rows, &node) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && capture_has(stream))
        return capture_node(driver, stream, &node);
    if (result == CUDA_SUCCESS)
        host_calls_wait(driver, stream, device);
    if (result == CUDA_SUCCESS)
        result = fill_run(driver, device, &rows, &task);
    if (result == CUDA_SUCCESS)
        queue_submit(driver, stream, device, task, NULL);
    return result;
}

#define ROWS(bits, type)                                                                           \
    API CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width,    \
                                        size_t height)                                             \
    {                                                                                              \
        return fill_rows((struct fill_params){to, pitch, value, (bits) / 8, width, height}, NULL); \
    }                                                                                              \
    ALSO(cuMemsetD2D##bits##_v2, cuMemsetD2D##bits##_v2_ptds);                                     \
                                                                                                   \
    API CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width,  \
                                          size_t height, CUstream stream)                          \
    {                                                                                              \
        return fill_rows((struct fill_params){to, pitch, value, (bits) / 8, width, height},        \
                         stream);                                                                  \
    }                                                                                              \
    ALSO(cuMemsetD2D##bits##Async, cuMemsetD2D##bits##Async_ptsz);                                 \
                                                                                                   \
    API CUresult cuMemsetD2D##bits(uint32_t to, unsigned pitch, type value, unsigned width,        \
                                   unsigned height)                                                \
    {                                                                                              \
        return cuMemsetD2D##bits##_v2(to, pitch, value, width, height);                            \
    }                                                                                              \
                                                                                                   \
    API CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count);                   \
    API CUresult cuMemsetD##bits(uint32_t to, type value, unsigned count)                          \
    {                                                                                              \
        return cuMemsetD##bits##_v2(to, value, count);                                             \
    }                                                                                              \
    _Static_assert(sizeof(type) == (bits) / 8, "an element")

ROWS(8, unsigned char);
ROWS(16, unsigned short);
ROWS(32, unsigned);
