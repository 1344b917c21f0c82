#include "cuda/context/green.h"
#include "cuda/stream/stream.h"
#include <stdlib.h>
#include <string.h>

enum { SM = 1, NON_BLOCKING = 1, DEFAULT_STREAM = 1, WITHOUT_STREAM_SINCE = 13000 };
enum { IGNORE_COSCHEDULING = 1, LARGEST_CLUSTERS = 2 };
enum { CUDA_ERROR_RESOURCE_TYPE = 914, CUDA_ERROR_RESOURCE_CONFIGURATION = 915 };

/* CUdevResource. device and split lie in its padding; split: number of the call that made it a
 * part of something, 0 for the whole of a device or a context. */
struct resource {
    int type;
    int device;
    uint64_t split;
    unsigned char padding[80];
    unsigned sms;
    unsigned least, alignment; /* of parts */
    unsigned char rest[36];
};
_Static_assert(sizeof(struct resource) == 144, "as the interface has it");

/* What a green context is to be made of. */
struct description {
    uint32_t kind;
    int device;
    unsigned sms;
};

static bool is_green(const struct green *green)
{
    return green != NULL && green->kind == GREEN;
}

/* Guidelines of the documentation, by compute architecture. */
static void parts_of(const struct sim_gpu *gpu, unsigned flags, unsigned *least,
                     unsigned *alignment)
{
    unsigned major = gpu->capability_major;
    bool fine = major <= 7 || (flags & IGNORE_COSCHEDULING) != 0;
    *alignment = major <= 6 ? 1 : fine || major == 8 ? 2 : 8;
    *least = fine ? *alignment : major == 8 ? 4 : 8;
}

static struct resource resource_of(const struct driver *driver, int device, unsigned sms)
{
    struct resource resource = {.type = SM, .device = device, .sms = sms};
    parts_of(&driver->state->machine.gpus[driver->gpus[device]], 0, &resource.least,
             &resource.alignment);
    return resource;
}

static CUresult tell(const struct driver *driver, int device, unsigned sms, struct resource *out,
                     int type)
{
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != SM)
        return (CUresult)CUDA_ERROR_RESOURCE_TYPE;
    *out = resource_of(driver, device, sms);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetDevResource(CUdevice device, struct resource *out, int type)
{
    struct driver *driver;
    const struct sim_gpu *gpu;
    CUresult result = driver_device(device, &driver, &gpu);
    return result == CUDA_SUCCESS ? tell(driver, device, gpu->sm_count, out, type) : result;
}

API CUresult cuGreenCtxGetDevResource(CUgreenCtx green, struct resource *out, int type)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result == CUDA_SUCCESS && !is_green(green))
        result = CUDA_ERROR_INVALID_CONTEXT;
    return result == CUDA_SUCCESS ? tell(driver, green->device, green->sms, out, type) : result;
}

API CUresult cuCtxGetDevResource(CUcontext context, struct resource *out, int type)
{
    if (context == NULL || context->kind != CONTEXT)
        return CUDA_ERROR_INVALID_CONTEXT;
    return context->green != NULL ? cuGreenCtxGetDevResource(context->green, out, type)
                                  : cuDeviceGetDevResource(context->device, out, type);
}

/* How many SMs each group has, and how many groups there can be. */
static CUresult plan(const struct driver *driver, const struct resource *whole, unsigned flags,
                     unsigned wanted, unsigned *size, unsigned *groups)
{
    unsigned least, alignment;
    if (whole == NULL || whole->type != SM)
        return (CUresult)CUDA_ERROR_RESOURCE_TYPE;
    if (whole->split != 0)
        return (CUresult)CUDA_ERROR_RESOURCE_CONFIGURATION;
    const struct sim_gpu *gpu = &driver->state->machine.gpus[driver->gpus[whole->device]];
    if (wanted > whole->sms || flags > (IGNORE_COSCHEDULING | LARGEST_CLUSTERS) ||
        ((flags & LARGEST_CLUSTERS) != 0 && gpu->capability_major < 9))
        return CUDA_ERROR_INVALID_VALUE;
    parts_of(gpu, flags, &least, &alignment);
    *size = wanted > least ? (wanted + alignment - 1) / alignment * alignment : least;
    *groups = whole->sms / *size;
    return CUDA_SUCCESS;
}

API CUresult cuDevSmResourceSplitByCount(struct resource *out, unsigned *count,
                                         const struct resource *whole, struct resource *rest,
                                         unsigned flags, unsigned wanted)
{
    struct driver *driver;
    unsigned size, groups;
    CUresult result = driver_get(&driver);
    if (result == CUDA_SUCCESS)
        result = plan(driver, whole, flags, wanted, &size, &groups);
    if (result != CUDA_SUCCESS)
        return result;
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (out != NULL && *count < groups)
        groups = *count;
    struct resource part = resource_of(driver, whole->device, size);
    struct resource left = resource_of(driver, whole->device, whole->sms - groups * size);
    part.split = left.split = driver_number(driver);
    for (unsigned i = 0; out != NULL && i < groups; i++)
        out[i] = part;
    *count = groups;
    if (rest != NULL)
        *rest = left.sms > 0 ? left : (struct resource){0};
    return CUDA_SUCCESS;
}

API CUresult cuDevResourceGenerateDesc(struct description **out, const struct resource *resources,
                                       unsigned count)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || resources == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned sms = 0;
    for (unsigned i = 0; i < count; i++) {
        if (resources[i].type != SM)
            return (CUresult)CUDA_ERROR_RESOURCE_TYPE;
        if (resources[i].device != resources[0].device ||
            (count > 1 && (resources[i].split == 0 || resources[i].split != resources[0].split)))
            return (CUresult)CUDA_ERROR_RESOURCE_CONFIGURATION;
        sms += resources[i].sms;
    }
    struct description *made = malloc(sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *made = (struct description){.kind = DESCRIPTION, .device = resources[0].device, .sms = sms};
    *out = made;
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device);
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);

static void set_up(struct driver *driver, struct green *green)
{
    green->context = (struct context){
        .kind = CONTEXT, .device = green->device, .green = green, .number = driver_number(driver)};
    green->standard = (struct stream){.kind = STREAM,
                                      .device = green->device,
                                      .context = &green->context,
                                      .sms = green->sms,
                                      .number = driver_number(driver),
                                      .lane = queue_lane(driver, true)};
    green->lanes = UINT64_C(1) << green->standard.lane;
}

API CUresult cuGreenCtxCreate(CUgreenCtx *out, const struct description *description,
                              CUdevice device, unsigned flags)
{
    struct driver *driver;
    const struct sim_gpu *gpu;
    CUcontext primary;
    CUresult result = driver_device(device, &driver, &gpu);
    if (result != CUDA_SUCCESS)
        return result;
    bool flags_valid = flags == DEFAULT_STREAM ||
                       (flags == 0 && driver->state->machine.cuda_version >= WITHOUT_STREAM_SINCE);
    if (out == NULL || description == NULL || description->kind != DESCRIPTION || !flags_valid ||
        description->device != device)
        return CUDA_ERROR_INVALID_VALUE;
    struct green *green = calloc(1, sizeof *green);
    if (green == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = cuDevicePrimaryCtxRetain(&primary, device);
    if (result != CUDA_SUCCESS) {
        free(green);
        return result;
    }
    *green = (struct green){.kind = GREEN, .device = device, .sms = description->sms};
    set_up(driver, green);
    *out = green;
    return CUDA_SUCCESS;
}

/* Waits for its work. The object stays, marked, as a context does that is destroyed. */
API CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_green(green))
        return CUDA_ERROR_INVALID_CONTEXT;
    struct sim_reach reach = queue_all(driver, green->device);
    reach.lanes = green->lanes;
    queue_wait(driver, green->device, reach);
    context_leave(driver, &green->context);
    green->kind = green->context.kind = green->standard.kind = NO_OBJECT;
    return cuDevicePrimaryCtxRelease_v2(green->device);
}

API CUresult cuCtxFromGreenCtx(CUcontext *out, CUgreenCtx green)
{
    if (!is_green(green))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = &green->context;
    return CUDA_SUCCESS;
}

API CUresult cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx green, unsigned flags, int priority)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_green(green))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (out == NULL || flags != NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    result = stream_new(driver, &green->context, flags, priority, out);
    if (result == CUDA_SUCCESS)
        (*out)->of_green_interface = true;
    return result;
}

API CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx *out)
{
    struct context *context;
    CUresult result = stream_context(handle, out, &context);
    if (result == CUDA_SUCCESS)
        *out = context->green;
    return result;
}

/* The primary context beside a green one. */
API CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *out, CUgreenCtx *green)
{
    struct driver *driver;
    struct context *context;
    CUresult result = stream_context(handle, out, &context);
    if (result == CUDA_SUCCESS)
        result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    *out = context_base(driver, context);
    if (green != NULL)
        *green = context->green;
    return CUDA_SUCCESS;
}
ALSO(cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz);

API CUresult cuGreenCtxGetId(CUgreenCtx green, unsigned long long *out)
{
    if (!is_green(green))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = green->context.number;
    return CUDA_SUCCESS;
}

API CUresult cuStreamGetDevResource(CUstream handle, struct resource *out, int type)
{
    struct context *context;
    CUresult result = stream_context(handle, out, &context);
    return result == CUDA_SUCCESS ? cuCtxGetDevResource(context, out, type) : result;
}
ALSO(cuStreamGetDevResource, cuStreamGetDevResource_ptsz);
