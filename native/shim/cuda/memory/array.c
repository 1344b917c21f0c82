/* Arrays and mipmapped arrays: memory laid out by the driver, in ways only it knows.
 *
 * So the driver is asked before the array is made: by a twin of the same descriptor whose memory is
 * to be mapped later, which takes none, and of which the driver says what it would need. Where it
 * cannot be asked an upper bound is charged (core/memory/array_size.h). Arrays that get their
 * memory later are not charged: what is mapped to them is, where it is allocated.
 */
#include "core/memory/array_size.h"
#include "cuda/memory/charge.h"

static CUDA_ARRAY3D_DESCRIPTOR deferred(const struct array_shape *shape)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){
        .Width = shape->width,
        .Height = shape->height,
        .Depth = shape->depth,
        .Format = (int)shape->format,
        .NumChannels = shape->channels,
        .Flags = shape->flags | CUDA_ARRAY3D_DEFERRED_MAPPING,
    };
}

/* What the driver would take, or 0 if it does not say. */
static uint64_t ask_array(const struct array_shape *shape, CUdevice device)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = deferred(shape);
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs = {0};
    CUarray twin;
    CUstreamCaptureMode mode = own_calls_begin();
    CUresult result = REAL(cuArray3DCreate_v2)(&twin, &descriptor);
    if (result == CUDA_SUCCESS) {
        result = REAL(cuArrayGetMemoryRequirements)(&needs, twin, device);
        REAL(cuArrayDestroy)(twin);
    }
    own_calls_end(mode);
    return result == CUDA_SUCCESS ? needs.size : 0;
}

static uint64_t ask_mipmapped(const struct array_shape *shape, CUdevice device)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = deferred(shape);
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs = {0};
    CUmipmappedArray twin;
    CUstreamCaptureMode mode = own_calls_begin();
    CUresult result = REAL(cuMipmappedArrayCreate)(&twin, &descriptor, shape->levels);
    if (result == CUDA_SUCCESS) {
        result = REAL(cuMipmappedArrayGetMemoryRequirements)(&needs, twin, device);
        REAL(cuMipmappedArrayDestroy)(twin);
    }
    own_calls_end(mode);
    return result == CUDA_SUCCESS ? needs.size : 0;
}

typedef uint64_t (*ask)(const struct array_shape *shape, CUdevice device);

/* Of the current device. Before 11.6 a driver has no query, and might not know the flag. */
static uint64_t needed(struct process *process, const struct array_shape *shape, ask ask)
{
    uint64_t most = array_size(shape), said = 0;
    CUdevice device;
    if (most == 0)
        return 0;
    process_enter(process);
    if (REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS)
        said = ask(shape, device);
    process_leave();
    return said != 0 ? said : most;
}

static CUresult begin(struct charge *charge, const struct array_shape *shape, ask ask)
{
    struct process *process;
    uint64_t bytes = 0;
    *charge = (struct charge){0};
    if (process_gate(&process) == GATE_LIMITED && (bytes = needed(process, shape, ask)) == 0)
        return CUDA_SUCCESS;
    return charge_begin(charge, bytes, POINTER_ARRAY);
}

static CUresult settle_array(struct charge *charge, CUresult result, const CUarray *array)
{
    if (result == CUDA_SUCCESS && charge_record(charge, HOLDING_ARRAY, (uintptr_t)*array) != 0) {
        OWN_CALL(REAL(cuArrayDestroy)(*array)); /* what we could not give back must not be */
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return charge_end(charge, result);
}

#define FLAT(from)                                                                                 \
    (struct array_shape){.width = (from)->Width,                                                   \
                         .height = (from)->Height,                                                 \
                         .format = (uint32_t)(from)->Format,                                       \
                         .channels = (from)->NumChannels,                                          \
                         .levels = 1}
#define DEEP(from, count)                                                                          \
    (struct array_shape)                                                                           \
    {                                                                                              \
        .width = (from)->Width, .height = (from)->Height, .depth = (from)->Depth,                  \
        .format = (uint32_t)(from)->Format, .channels = (from)->NumChannels,                       \
        .flags = (from)->Flags, .levels = (count)                                                  \
    }

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
    struct charge charge;
    if (descriptor == NULL)
        return REAL(cuArrayCreate_v2)(array, descriptor);
    CUresult result = begin(&charge, &FLAT(descriptor), ask_array);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuArrayCreate_v2)(array, descriptor);
    return settle_array(&charge, result, array);
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor)
{
    struct charge charge;
    if (descriptor == NULL)
        return REAL(cuArrayCreate)(array, descriptor);
    CUresult result = begin(&charge, &FLAT(descriptor), ask_array);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuArrayCreate)(array, descriptor);
    return settle_array(&charge, result, array);
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    struct charge charge;
    if (descriptor == NULL)
        return REAL(cuArray3DCreate_v2)(array, descriptor);
    CUresult result = begin(&charge, &DEEP(descriptor, 1), ask_array);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuArray3DCreate_v2)(array, descriptor);
    return settle_array(&charge, result, array);
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor)
{
    struct charge charge;
    if (descriptor == NULL)
        return REAL(cuArray3DCreate)(array, descriptor);
    CUresult result = begin(&charge, &DEEP(descriptor, 1), ask_array);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuArray3DCreate)(array, descriptor);
    return settle_array(&charge, result, array);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                                unsigned int levels)
{
    struct charge charge;
    if (descriptor == NULL)
        return REAL(cuMipmappedArrayCreate)(array, descriptor, levels);
    CUresult result = begin(&charge, &DEEP(descriptor, levels), ask_mipmapped);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuMipmappedArrayCreate)(array, descriptor, levels);
    if (result == CUDA_SUCCESS && charge_record(&charge, HOLDING_ARRAY, (uintptr_t)*array) != 0) {
        OWN_CALL(REAL(cuMipmappedArrayDestroy)(*array));
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return charge_end(&charge, result);
}

CUresult cuArrayDestroy(CUarray array)
{
    struct release release;
    release_begin(&release, HOLDING_ARRAY, (uintptr_t)array);
    return release_settle(&release, REAL(cuArrayDestroy)(array));
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    struct release release;
    release_begin(&release, HOLDING_ARRAY, (uintptr_t)array);
    return release_settle(&release, REAL(cuMipmappedArrayDestroy)(array));
}
