/* cuMemset*: `count` elements of 1, 2 or 4 bytes. All return before the device has done it, the
 * synchronous ones too, as documented. */
#include "cuda/capture/capture.h"
#include "cuda/memory/addresses.h"
#include "cuda/memory/memory.h"
#include "cuda/stream/host_call.h"
#include "cuda/stream/tasks.h"
#include <string.h>

struct fill {
    CUdeviceptr to;
    uint32_t value;
    unsigned width;
    size_t count;
};

static void write_elements(const struct fill *fill)
{
    char *to = (char *)(uintptr_t)fill->to;
    if (fill->width == 1) {
        memset(to, (int)fill->value, fill->count);
        return;
    }
    uint16_t narrow = (uint16_t)fill->value;
    const void *element = fill->width == 2 ? (const void *)&narrow : (const void *)&fill->value;
    for (size_t i = 0; i < fill->count; i++)
        memcpy(to + i * fill->width, element, fill->width);
}

static CUresult write_checked(struct driver *driver, const struct fill *fill)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    uint64_t bytes;
    if (fill->to % fill->width == 0 &&
        !__builtin_mul_overflow((uint64_t)fill->count, (uint64_t)fill->width, &bytes) &&
        (host_memory_has(driver, fill->to, bytes) ||
         addresses_access(&driver->memory, fill->to, bytes) == 0)) {
        write_elements(fill);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

static struct sim_task work_of(const struct driver *driver, int device, uint64_t count,
                               uint64_t width)
{
    return count > 0 ? task_memory(driver, device, count * width) : NO_WORK;
}

CUresult fill_run(struct driver *driver, int device, const struct fill_params *params,
                  struct sim_task *out)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t y = 0; y < params->height && result == CUDA_SUCCESS; y++) {
        struct fill row = {params->to + y * params->pitch, params->value, params->element,
                           params->width};
        result = row.count > 0 ? write_checked(driver, &row) : CUDA_SUCCESS;
    }
    *out = work_of(driver, device, params->width * params->height, params->element);
    return result;
}

static CUresult capture_fill(struct driver *driver, struct stream *stream, const struct fill *fill)
{
    struct node node = {
        .type = NODE_FILL,
        .fill = {fill->to, fill->count * fill->width, fill->value, fill->width, fill->count, 1}};
    return capture_node(driver, stream, &node);
}

static CUresult fill_async(struct fill fill, CUstream handle)
{
    struct driver *driver;
    struct stream *stream;
    int device;
    CUresult result = queue_find(handle, &driver, &stream, &device);
    if (result == CUDA_SUCCESS && capture_has(stream))
        return capture_fill(driver, stream, &fill);
    if (result == CUDA_SUCCESS)
        host_calls_wait(driver, stream, device);
    if (result == CUDA_SUCCESS && fill.count > 0)
        result = write_checked(driver, &fill);
    if (result == CUDA_SUCCESS)
        queue_submit(driver, stream, device, work_of(driver, device, fill.count, fill.width), NULL);
    return result;
}

API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count)
{
    return fill_async((struct fill){to, value, 1, count}, NULL);
}
ALSO(cuMemsetD8_v2, cuMemsetD8_v2_ptds);

API CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count)
{
    return fill_async((struct fill){to, value, 2, count}, NULL);
}
ALSO(cuMemsetD16_v2, cuMemsetD16_v2_ptds);

API CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count)
{
    return fill_async((struct fill){to, value, 4, count}, NULL);
}
ALSO(cuMemsetD32_v2, cuMemsetD32_v2_ptds);

API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
    return fill_async((struct fill){to, value, 1, count}, stream);
}
ALSO(cuMemsetD8Async, cuMemsetD8Async_ptsz);

API CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream)
{
    return fill_async((struct fill){to, value, 2, count}, stream);
}
ALSO(cuMemsetD16Async, cuMemsetD16Async_ptsz);

API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    return fill_async((struct fill){to, value, 4, count}, stream);
}
ALSO(cuMemsetD32Async, cuMemsetD32Async_ptsz);
