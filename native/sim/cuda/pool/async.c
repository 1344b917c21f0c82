/* Allocation in the order of a stream. The forms for default streams per thread are functions of
 * their own, as in the driver: whoever goes by addresses can tell them apart. */
#include "cuda/capture/capture.h"
#include "cuda/memory/addresses.h"
#include "cuda/memory/memory.h"
#include "cuda/pool/pool.h"

/* A stream as pools know it: which, and how far its work reaches now. */
static CUresult of_stream(struct driver **driver, CUstream handle, struct pool_stream *out)
{
    struct stream *stream;
    CUresult result = queue_find(handle, driver, &stream, &out->device);
    if (result != CUDA_SUCCESS)
        return result;
    *out = (struct pool_stream){.device = out->device,
                                .number = stream != NULL ? stream->number : 0,
                                .reach = queue_reach(*driver, stream, out->device),
                                .followed = queue_followed(*driver, stream, out->device)};
    return CUDA_SUCCESS;
}

/* What the stream took may be in use until then. */
static void wait_in_stream(CUstream handle, const struct pool_stream *taken)
{
    struct driver *driver;
    struct stream *stream;
    int device;
    if (queue_find(handle, &driver, &stream, &device) == CUDA_SUCCESS)
        queue_submit_waits(driver, stream, device, &taken->waits);
}

/* The stream, if it is captured, so that the call becomes a node; else NULL. */
static struct stream *captured(CUstream handle)
{
    struct driver *driver;
    struct stream *stream;
    int device;
    CUresult result = queue_find(handle, &driver, &stream, &device);
    return result == CUDA_SUCCESS && capture_has(stream) ? stream : NULL;
}

static CUresult take(struct driver *driver, struct pool *pool, uint64_t bytes, CUstream handle,
                     struct pool_stream *stream, CUdeviceptr *out)
{
    if (out == NULL || !is_pool(pool) || pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver->mutex);
    CUresult result = pool_take(driver, pool, bytes, stream, out);
    pthread_mutex_unlock(&driver->mutex);
    if (result == CUDA_SUCCESS)
        wait_in_stream(handle, stream);
    return result;
}

/* The pool may be on another device than the stream. */
API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool,
                                     CUstream handle)
{
    struct driver *driver;
    struct pool_stream stream;
    CUresult result = of_stream(&driver, handle, &stream);
    if (result == CUDA_SUCCESS && captured(handle) != NULL)
        return is_pool(pool) ? capture_alloc(driver, captured(handle), pool->device, bytes, out)
                             : CUDA_ERROR_INVALID_VALUE;
    return result == CUDA_SUCCESS ? take(driver, pool, bytes, handle, &stream, out) : result;
}

API CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t bytes, CUmemoryPool pool,
                                          CUstream handle)
{
    return cuMemAllocFromPoolAsync(out, bytes, pool, handle);
}

API CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream handle)
{
    struct driver *driver;
    struct pool_stream stream;
    CUresult result = of_stream(&driver, handle, &stream);
    if (result == CUDA_SUCCESS && captured(handle) != NULL)
        return capture_alloc(driver, captured(handle), stream.device, bytes, out);
    return result == CUDA_SUCCESS
               ? take(driver, driver->pools[stream.device], bytes, handle, &stream, out)
               : result;
}

API CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, CUstream handle)
{
    return cuMemAllocAsync(out, bytes, handle);
}

/* What came from no pool is freed too, as cuMemFree would; that at once, though. */
API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
    struct driver *driver;
    struct pool_stream stream;
    CUresult result = of_stream(&driver, handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (captured(handle) != NULL)
        return capture_free(driver, captured(handle), address);
    return memory_free_in(driver, address, stream);
}

API CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream handle)
{
    return cuMemFreeAsync(address, handle);
}
