/* One cooperative kernel on several devices: as documented, of one shape, each part in a stream of
 * a device of its own. Here the parts wait neither for one another nor for what the streams of the
 * others had before, as they do on real GPUs unless flags say that they need not.
 */
#include "cuda/module/module.h"
#include "cuda/stream/queue.h"
#include <string.h>

struct part {
    CUfunction function;
    unsigned grid[3], block[3], shared;
    CUstream stream;
    void **parameters;
};

_Static_assert(sizeof(struct part) == 56, "as the interface has it");

API CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                       unsigned grid_z, unsigned block_x, unsigned block_y,
                                       unsigned block_z, unsigned shared, CUstream stream,
                                       void **parameters);

static bool same_shape(const struct part *one, const struct part *other)
{
    return memcmp(one->grid, other->grid, sizeof one->grid) == 0 &&
           memcmp(one->block, other->block, sizeof one->block) == 0 && one->shared == other->shared;
}

/* Which device is it for? Default streams will not do. */
static CUresult device_of(struct driver *driver, const struct part *part, int *device)
{
    struct stream *stream;
    CUresult result = queue_stream(driver, part->stream, &stream, device);
    if (result == CUDA_SUCCESS && stream == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    return result;
}

static CUresult check(struct driver *driver, const struct part *parts, unsigned count)
{
    bool taken[SIM_GPUS] = {false};
    for (unsigned i = 0; i < count; i++) {
        int device;
        CUresult result = device_of(driver, &parts[i], &device);
        if (result != CUDA_SUCCESS)
            return result;
        if (taken[device] || !same_shape(&parts[i], &parts[0]))
            return CUDA_ERROR_INVALID_VALUE;
        taken[device] = true;
    }
    return CUDA_SUCCESS;
}

API CUresult cuLaunchCooperativeKernelMultiDevice(const struct part *parts, unsigned count,
                                                  unsigned flags)
{
    enum { NO_SYNC_BEFORE = 1, NO_SYNC_AFTER = 2 };
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (parts == NULL || count == 0 || (flags & ~(NO_SYNC_BEFORE | NO_SYNC_AFTER)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = check(driver, parts, count);
    for (const struct part *at = parts; at < parts + count && result == CUDA_SUCCESS; at++)
        result = cuLaunchCooperativeKernel(at->function, at->grid[0], at->grid[1], at->grid[2],
                                           at->block[0], at->block[1], at->block[2], at->shared,
                                           at->stream, at->parameters);
    return result;
}
