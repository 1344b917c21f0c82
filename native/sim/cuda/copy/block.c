/* cuMemcpy2D, cuMemcpy3D and between contexts. */
#include "cuda/copy/block.h"
#include "cuda/array/contents.h"
#include "cuda/capture/capture.h"
#include "cuda/memory/addresses.h"
#include "cuda/stream/host_call.h"
#include "cuda/stream/tasks.h"

/* CUDA_MEMCPY2D, and the two structs of the 32-bit API. */
struct side_2d {
    size_t x_bytes, y;
    int memory;
    void *host;
    CUdeviceptr device;
    CUarray array;
    size_t pitch;
};

struct copy_2d {
    struct side_2d from, to;
    size_t width_bytes, height;
};

struct copy_2d_v1 {
    unsigned from_x_bytes, from_y;
    int from_memory;
    void *from_host;
    uint32_t from_device;
    CUarray from_array;
    unsigned from_pitch;
    unsigned to_x_bytes, to_y;
    int to_memory;
    void *to_host;
    uint32_t to_device;
    CUarray to_array;
    unsigned to_pitch;
    unsigned width_bytes, height;
};

struct copy_3d_v1 {
    unsigned from_x_bytes, from_y, from_z, from_level;
    int from_memory;
    void *from_host;
    uint32_t from_device;
    CUarray from_array;
    void *from_reserved;
    unsigned from_pitch, from_height;
    unsigned to_x_bytes, to_y, to_z, to_level;
    int to_memory;
    void *to_host;
    uint32_t to_device;
    CUarray to_array;
    void *to_reserved;
    unsigned to_pitch, to_height;
    unsigned width_bytes, height, depth;
};

_Static_assert(sizeof(struct copy_2d) == 128, "as the interface has it");
_Static_assert(sizeof(struct copy_2d_v1) == 96, "as the interface has it");
_Static_assert(sizeof(struct copy_3d_v1) == 144, "as the interface has it");

static struct copy_side side_of(const struct side_2d *side)
{
    return (struct copy_side){.x_bytes = side->x_bytes,
                              .y = side->y,
                              .memory = side->memory,
                              .host = side->host,
                              .device = side->device,
                              .array = side->array,
                              .pitch = side->pitch};
}

static struct copy_params of_2d(const struct copy_2d *copy)
{
    return (struct copy_params){side_of(&copy->from), side_of(&copy->to), copy->width_bytes,
                                copy->height, 1};
}

/* The fields of one side, which both structs of the 32-bit API call alike. */
#define SIDE_V1(copy, side)                                                                        \
    {.x_bytes = (copy)->side##_x_bytes,                                                            \
     .y = (copy)->side##_y,                                                                        \
     .memory = (copy)->side##_memory,                                                              \
     .host = (copy)->side##_host,                                                                  \
     .device = (copy)->side##_device,                                                              \
     .array = (copy)->side##_array,                                                                \
     .pitch = (copy)->side##_pitch}

static struct copy_params of_2d_v1(const struct copy_2d_v1 *copy)
{
    return (struct copy_params){SIDE_V1(copy, from), SIDE_V1(copy, to), copy->width_bytes,
                                copy->height, 1};
}

static struct copy_params of_3d_v1(const struct copy_3d_v1 *copy)
{
    struct copy_params params = {SIDE_V1(copy, from), SIDE_V1(copy, to), copy->width_bytes,
                                 copy->height, copy->depth};
    params.from.z = copy->from_z;
    params.to.z = copy->to_z;
    params.from.height = copy->from_height;
    params.to.height = copy->to_height;
    return params;
}

static bool rows_apart(const struct copy_side *side, const struct copy_params *params)
{
    return (params->height <= 1 || side->pitch >= side->x_bytes + params->width_bytes) &&
           (params->depth <= 1 || side->height >= side->y + params->height);
}

/* Is a side in device memory all there? */
static bool there(struct driver *driver, const struct copy_side *side,
                  const struct copy_params *params)
{
    bool found = true;
    for (size_t z = 0; side->memory == BLOCK_DEVICE && z < params->depth; z++)
        for (size_t y = 0; y < params->height && found; y++) {
            size_t row = (side->z + z) * side->height + side->y + y;
            CUdeviceptr start = side->device + row * side->pitch + side->x_bytes;
            pthread_mutex_lock(&driver->mutex);
            found = addresses_access(&driver->memory, start, params->width_bytes) == 0;
            pthread_mutex_unlock(&driver->mutex);
        }
    return found;
}

static CUresult check_side(struct driver *driver, const struct copy_side *side,
                           const struct copy_params *params)
{
    if (side->memory < BLOCK_HOST || side->memory > BLOCK_UNIFIED)
        return CUDA_ERROR_INVALID_VALUE;
    if (side->memory == BLOCK_ARRAY)
        return array_covers(side, params);
    return rows_apart(side, params) && there(driver, side, params) ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check(struct driver *driver, const struct copy_params *params)
{
    CUresult result = check_side(driver, &params->from, params);
    return result == CUDA_SUCCESS ? check_side(driver, &params->to, params) : result;
}

static bool empty(const struct copy_params *params)
{
    return params->width_bytes == 0 || params->height == 0 || params->depth == 0;
}

/* After the work before it; within the device it returns before it is done (transfer.c). */
static CUresult copy_now(struct driver *driver, int device, const struct copy_params *params)
{
    struct sim_task task;
    queue_wait(driver, device, queue_reach(driver, NULL, device));
    CUresult result = copy_run(driver, device, params, &task);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_reach reach = queue_submit(driver, NULL, device, task, NULL);
    if (task.kind != SIM_MEMORY)
        queue_wait(driver, device, reach);
    return CUDA_SUCCESS;
}

CUresult block_copy(struct copy_params params)
{
    struct driver *driver;
    struct context *context;
    CUresult result = driver_context(&driver, &context);
    if (result != CUDA_SUCCESS || empty(&params))
        return result;
    result = check(driver, &params);
    if (result == CUDA_SUCCESS)
        result = capture_asked(driver, NULL, context->device);
    if (result != CUDA_SUCCESS)
        return result;
    return copy_now(driver, context->device, &params);
}

CUresult block_copy_async(struct copy_params params, CUstream handle)
{
    struct driver *driver;
    struct stream *stream;
    struct node node;
    struct sim_task task = NO_WORK;
    int device;
    CUresult result = queue_find(handle, &driver, &stream, &device);
    if (result == CUDA_SUCCESS && !empty(&params))
        result = check(driver, &params);
    if (result == CUDA_SUCCESS)
        result = node_of_copy(&params, &node);
    if (result == CUDA_SUCCESS && capture_has(stream))
        return capture_node(driver, stream, &node);
    if (result == CUDA_SUCCESS)
        host_calls_wait(driver, stream, device);
    if (result == CUDA_SUCCESS && !empty(&params))
        result = copy_run(driver, device, &params, &task);
    if (result == CUDA_SUCCESS)
        queue_submit(driver, stream, device, task, NULL);
    return result;
}

API CUresult cuMemcpy2D_v2(const struct copy_2d *block)
{
    return block == NULL ? CUDA_ERROR_INVALID_VALUE : block_copy(of_2d(block));
}
ALSO(cuMemcpy2D_v2, cuMemcpy2D_v2_ptds);
ALSO(cuMemcpy2D_v2, cuMemcpy2DUnaligned_v2);
ALSO(cuMemcpy2D_v2, cuMemcpy2DUnaligned_v2_ptds);

API CUresult cuMemcpy2D(const struct copy_2d_v1 *block)
{
    return block == NULL ? CUDA_ERROR_INVALID_VALUE : block_copy(of_2d_v1(block));
}
ALSO(cuMemcpy2D, cuMemcpy2DUnaligned);

API CUresult cuMemcpy2DAsync_v2(const struct copy_2d *block, CUstream stream)
{
    return block == NULL ? CUDA_ERROR_INVALID_VALUE : block_copy_async(of_2d(block), stream);
}
ALSO(cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz);

API CUresult cuMemcpy2DAsync(const struct copy_2d_v1 *block, CUstream stream)
{
    return block == NULL ? CUDA_ERROR_INVALID_VALUE : block_copy_async(of_2d_v1(block), stream);
}

API CUresult cuMemcpy3D_v2(const struct copy_params *block)
{
    return block == NULL ? CUDA_ERROR_INVALID_VALUE : block_copy(*block);
}
ALSO(cuMemcpy3D_v2, cuMemcpy3D_v2_ptds);
ALSO(cuMemcpy3D_v2, cuMemcpy3DPeer); /* where others have a reserved word it has a context */
ALSO(cuMemcpy3D_v2, cuMemcpy3DPeer_ptds);

API CUresult cuMemcpy3D(const struct copy_3d_v1 *block)
{
    return block == NULL ? CUDA_ERROR_INVALID_VALUE : block_copy(of_3d_v1(block));
}

API CUresult cuMemcpy3DAsync_v2(const struct copy_params *block, CUstream stream)
{
    return block == NULL ? CUDA_ERROR_INVALID_VALUE : block_copy_async(*block, stream);
}
ALSO(cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz);
ALSO(cuMemcpy3DAsync_v2, cuMemcpy3DPeerAsync);
ALSO(cuMemcpy3DAsync_v2, cuMemcpy3DPeerAsync_ptsz);

API CUresult cuMemcpy3DAsync(const struct copy_3d_v1 *block, CUstream stream)
{
    return block == NULL ? CUDA_ERROR_INVALID_VALUE : block_copy_async(of_3d_v1(block), stream);
}
