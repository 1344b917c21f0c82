/* Where managed memory is to be: advice, prefetching, and what was said of a range.
 *
 * All of it is kept for an allocation as a whole, also where the call named a part. Physical memory
 * stays counted on the device it was allocated on, wherever it is prefetched to. */
#include "cuda/capture/capture.h"
#include "cuda/memory/addresses.h"
#include "cuda/stream/queue.h"
#include "cuda/stream/tasks.h"

enum { INVALID = 0, ON_DEVICE = 1, ON_HOST = 2, ON_NUMA_NODE = 3, ON_THIS_NODE = 4 };
enum { CPU = -1, NO_DEVICE = -2 };

enum advice_kind {
    SET_READ_MOSTLY = 1,
    UNSET_READ_MOSTLY,
    SET_PREFERRED,
    UNSET_PREFERRED,
    SET_ACCESSED_BY,
    UNSET_ACCESSED_BY,
};

enum range_attribute {
    READ_MOSTLY = 1,
    PREFERRED,
    ACCESSED_BY,
    PREFETCHED,
    PREFERRED_TYPE,
    PREFERRED_ID,
    PREFETCHED_TYPE,
    PREFETCHED_ID,
};

/* A place as the first interface has it: a device, or the host. */
static CUmemLocation place_of(CUdevice device)
{
    return device == CPU ? (CUmemLocation){ON_HOST, 0} : (CUmemLocation){ON_DEVICE, device};
}

static CUdevice device_of(CUmemLocation place)
{
    return place.type == ON_DEVICE ? place.id : place.type == ON_HOST ? CPU : NO_DEVICE;
}

static CUresult check_place(const struct driver *driver, CUmemLocation place)
{
    if (place.type == ON_DEVICE)
        return place.id >= 0 && (unsigned)place.id < driver->device_count
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_DEVICE;
    return place.type >= ON_HOST && place.type <= ON_THIS_NODE && place.id >= 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

/* The allocation all of a range lies in, if it is managed; driver->mutex is held. */
static struct allocation *managed(struct driver *driver, CUdeviceptr start, size_t bytes)
{
    struct allocation *found = addresses_find(&driver->memory, start);
    return found != NULL && found->managed && bytes > 0 &&
                   bytes <= found->bytes - (start - found->start)
               ? found
               : NULL;
}

static CUresult access_by(struct advice *advice, CUmemLocation place, bool set)
{
    if (place.type != ON_DEVICE && place.type != ON_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    uint32_t bit = place.type == ON_HOST ? UINT32_C(1) << SIM_GPUS : UINT32_C(1) << place.id;
    advice->accessed_by = set ? advice->accessed_by | bit : advice->accessed_by & ~bit;
    return CUDA_SUCCESS;
}

static CUresult take_advice(struct advice *advice, int kind, CUmemLocation place)
{
    switch (kind) {
    case SET_READ_MOSTLY:
    case UNSET_READ_MOSTLY:
        advice->read_mostly = kind == SET_READ_MOSTLY;
        return CUDA_SUCCESS;
    case SET_PREFERRED:
        advice->preferred = place;
        return CUDA_SUCCESS;
    case UNSET_PREFERRED:
        advice->preferred = (CUmemLocation){INVALID, 0};
        return CUDA_SUCCESS;
    case SET_ACCESSED_BY:
    case UNSET_ACCESSED_BY:
        return access_by(advice, place, kind == SET_ACCESSED_BY);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

API CUresult cuMemAdvise_v2(CUdeviceptr start, size_t bytes, int kind, CUmemLocation place)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    bool ignored = kind == SET_READ_MOSTLY || kind == UNSET_READ_MOSTLY || kind == UNSET_PREFERRED;
    if (result == CUDA_SUCCESS && !ignored)
        result = check_place(driver, place);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver->mutex);
    struct allocation *found = managed(driver, start, bytes);
    result = found != NULL ? take_advice(&found->advice, kind, place) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

API CUresult cuMemAdvise(CUdeviceptr start, size_t bytes, int kind, CUdevice device)
{
    return cuMemAdvise_v2(start, bytes, kind, place_of(device));
}

/* Remember the place. What has to move: nothing where it was prefetched to the same one before. */
static CUresult move_to(struct driver *driver, CUdeviceptr start, size_t bytes, CUmemLocation place,
                        size_t *moving)
{
    pthread_mutex_lock(&driver->mutex);
    struct allocation *found = managed(driver, start, bytes);
    if (found != NULL) {
        CUmemLocation *known = &found->advice.prefetched;
        *moving = known->type == place.type && known->id == place.id ? 0 : bytes;
        *known = place;
    }
    pthread_mutex_unlock(&driver->mutex);
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemPrefetchAsync_v2(CUdeviceptr start, size_t bytes, CUmemLocation place,
                                   unsigned flags, CUstream handle)
{
    struct driver *driver;
    struct stream *stream;
    int device;
    size_t moving;
    CUresult result = queue_find(handle, &driver, &stream, &device);
    if (result == CUDA_SUCCESS)
        result = flags == 0 ? check_place(driver, place) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = capture_asked(driver, stream, device);
    if (result == CUDA_SUCCESS)
        result = move_to(driver, start, bytes, place, &moving);
    if (result != CUDA_SUCCESS)
        return result;
    enum sim_kind direction = place.type == ON_DEVICE ? SIM_COPY_TO_DEVICE : SIM_COPY_TO_HOST;
    struct sim_task task = moving > 0 ? task_copy(driver, device, direction, moving) : NO_WORK;
    queue_submit(driver, stream, device, task, NULL);
    return CUDA_SUCCESS;
}
ALSO(cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz);

API CUresult cuMemPrefetchAsync(CUdeviceptr start, size_t bytes, CUdevice device, CUstream stream)
{
    return cuMemPrefetchAsync_v2(start, bytes, place_of(device), 0, stream);
}
ALSO(cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz);

/* Which streams may use it is not kept; the whole allocation is attached, to one of the program's
 * own streams if to a single one. */
API CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr start, size_t bytes,
                                    unsigned flags)
{
    enum { TO_ALL = 1, TO_HOST = 2, TO_ONE = 4 };
    struct driver *driver;
    struct stream *stream;
    int device;
    CUresult result = queue_find(handle, &driver, &stream, &device);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver->mutex);
    const struct allocation *found = managed(driver, start, 1);
    bool whole = found != NULL && start == found->start && (bytes == 0 || bytes == found->bytes);
    pthread_mutex_unlock(&driver->mutex);
    if (!whole || (flags != TO_ALL && flags != TO_HOST && flags != TO_ONE) ||
        (flags == TO_ONE && stream == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    queue_submit(driver, stream, device, NO_WORK, NULL);
    return CUDA_SUCCESS;
}
ALSO(cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz);

static CUresult list_accessors(const struct advice *advice, int *out, size_t bytes)
{
    size_t room = bytes / sizeof *out, count = 0;
    if (room == 0 || bytes % sizeof *out != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (int bit = 0; bit <= SIM_GPUS && count < room; bit++)
        if ((advice->accessed_by >> bit & 1) != 0)
            out[count++] = bit == SIM_GPUS ? CPU : bit;
    while (count < room)
        out[count++] = NO_DEVICE;
    return CUDA_SUCCESS;
}

static CUresult tell(const struct advice *advice, int attribute, int *out, size_t bytes)
{
    if (attribute == ACCESSED_BY)
        return list_accessors(advice, out, bytes);
    const int values[] = {
        [READ_MOSTLY] = advice->read_mostly,          [PREFERRED] = device_of(advice->preferred),
        [PREFETCHED] = device_of(advice->prefetched), [PREFERRED_TYPE] = advice->preferred.type,
        [PREFERRED_ID] = advice->preferred.id,        [PREFETCHED_TYPE] = advice->prefetched.type,
        [PREFETCHED_ID] = advice->prefetched.id,
    };
    if (attribute < READ_MOSTLY || attribute > PREFETCHED_ID || bytes != sizeof *out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = values[attribute];
    return CUDA_SUCCESS;
}

API CUresult cuMemRangeGetAttribute(void *out, size_t size, int attribute, CUdeviceptr start,
                                    size_t bytes)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    const struct allocation *found = managed(driver, start, bytes);
    result = found != NULL ? tell(&found->advice, attribute, out, size) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&driver->mutex);
    return result;
}

API CUresult cuMemRangeGetAttributes(void **out, const size_t *sizes, const int *attributes,
                                     size_t count, CUdeviceptr start, size_t bytes)
{
    CUresult result = CUDA_SUCCESS;
    if (out == NULL || sizes == NULL || attributes == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = cuMemRangeGetAttribute(out[i], sizes[i], attributes[i], start, bytes);
    return result;
}
