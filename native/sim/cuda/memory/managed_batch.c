/* Prefetching and discarding managed memory in batches (CUDA 13). What is discarded keeps its
 * bytes here, of which nothing may be expected. */
#include "cuda/memory/addresses.h"
#include "cuda/stream/queue.h"

API CUresult cuMemPrefetchAsync_v2(CUdeviceptr start, size_t bytes, CUmemLocation place,
                                   unsigned flags, CUstream handle);

enum { LEGACY = 1 };

struct batch {
    const CUdeviceptr *starts;
    const size_t *sizes;
    size_t count;
};

/* Is each range there and managed? */
static bool ranges_valid(struct driver *driver, const struct batch *batch)
{
    bool valid = true;
    pthread_mutex_lock(&driver->mutex);
    for (size_t i = 0; i < batch->count && valid; i++) {
        const struct allocation *found = addresses_find(&driver->memory, batch->starts[i]);
        valid = found != NULL && found->managed && batch->sizes[i] > 0 &&
                batch->sizes[i] <= found->bytes - (batch->starts[i] - found->start);
    }
    pthread_mutex_unlock(&driver->mutex);
    return valid;
}

static CUresult check(const struct batch *batch, unsigned long long flags, CUstream stream)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result != CUDA_SUCCESS)
        return result;
    return flags == 0 && batch->count > 0 && batch->starts != NULL && batch->sizes != NULL &&
                   (uintptr_t)stream > LEGACY && ranges_valid(driver, batch)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

/* Each place is for the ranges from its index on; the first index is 0, and they grow. */
static bool places_valid(const struct batch *batch, const size_t *from, size_t count)
{
    if (from == NULL || count == 0 || count > batch->count || from[0] != 0)
        return false;
    for (size_t i = 1; i < count; i++)
        if (from[i] <= from[i - 1] || from[i] >= batch->count)
            return false;
    return true;
}

API CUresult cuMemPrefetchBatchAsync(const CUdeviceptr *starts, const size_t *sizes, size_t count,
                                     const CUmemLocation *places, const size_t *from,
                                     size_t place_count, unsigned long long flags, CUstream stream)
{
    struct batch batch = {starts, sizes, count};
    CUresult result = check(&batch, flags, stream);
    if (result == CUDA_SUCCESS && (places == NULL || !places_valid(&batch, from, place_count)))
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0, place = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (place + 1 < place_count && from[place + 1] == i)
            place++;
        result = cuMemPrefetchAsync_v2(starts[i], sizes[i], places[place], 0, stream);
    }
    return result;
}
ALSO(cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync_ptsz);
ALSO(cuMemPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync);
ALSO(cuMemPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync_ptsz);

API CUresult cuMemDiscardBatchAsync(const CUdeviceptr *starts, const size_t *sizes, size_t count,
                                    unsigned long long flags, CUstream handle)
{
    struct driver *driver;
    struct stream *stream;
    int device;
    struct batch batch = {starts, sizes, count};
    CUresult result = check(&batch, flags, handle);
    if (result == CUDA_SUCCESS)
        result = queue_find(handle, &driver, &stream, &device);
    if (result == CUDA_SUCCESS)
        queue_submit(driver, stream, device, (struct sim_task){.kind = SIM_MARKER}, NULL);
    return result;
}
ALSO(cuMemDiscardBatchAsync, cuMemDiscardBatchAsync_ptsz);
