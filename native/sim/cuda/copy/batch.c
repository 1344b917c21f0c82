/* Copies with attributes (CUDA 12.8, 13.0, 13.2). The attributes are checked and change nothing:
 * bytes move when the call is made, which any order of access allows. */
#include "cuda/driver.h"

typedef struct {
    int order; /* in which the source is read */
    CUmemLocation from_hint;
    CUmemLocation to_hint;
    unsigned flags;
} CUmemcpyAttributes;

struct batch {
    const CUdeviceptr *to;
    const CUdeviceptr *from;
    const size_t *bytes;
    size_t count;
    const CUmemcpyAttributes *attributes;
    const size_t *first; /* of the copies that the attributes of this index are for */
    size_t attribute_count;
};

extern CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);

static bool is_legacy(CUstream stream)
{
    return (uintptr_t)stream <= 1;
}

static bool valid(const CUmemcpyAttributes *attributes)
{
    enum { IN_STREAM = 1, DURING_CALL = 2, ANY = 3 };
    return attributes->order >= IN_STREAM && attributes->order <= ANY && attributes->flags <= 1;
}

static bool complete(const struct batch *batch)
{
    if (batch->to == NULL || batch->from == NULL || batch->bytes == NULL || batch->count == 0 ||
        batch->attributes == NULL || batch->first == NULL || batch->attribute_count == 0 ||
        batch->attribute_count > batch->count || batch->first[0] != 0)
        return false;
    for (size_t i = 0; i < batch->attribute_count; i++)
        if (!valid(&batch->attributes[i]) || batch->first[i] >= batch->count ||
            (i > 0 && batch->first[i] <= batch->first[i - 1]))
            return false;
    return true;
}

/* failed: the index of the copy that failed, all ones for none in particular; or NULL. */
static CUresult run(const struct batch *batch, size_t *failed, CUstream stream)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (failed != NULL)
        *failed = SIZE_MAX;
    if (result == CUDA_SUCCESS && !complete(batch))
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; result == CUDA_SUCCESS && i < batch->count; i++) {
        result = cuMemcpyAsync(batch->to[i], batch->from[i], batch->bytes[i], stream);
        if (result != CUDA_SUCCESS && failed != NULL)
            *failed = i;
    }
    return result;
}

/* With default streams per thread NULL is the thread's own stream, which batches may be in. */
API CUresult cuMemcpyBatchAsync_ptsz(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
                                     size_t count, CUmemcpyAttributes *attributes, size_t *first,
                                     size_t attribute_count, size_t *failed, CUstream stream)
{
    struct batch batch = {to, from, bytes, count, attributes, first, attribute_count};
    return run(&batch, failed, stream);
}

API CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
                                CUmemcpyAttributes *attributes, size_t *first,
                                size_t attribute_count, size_t *failed, CUstream stream)
{
    struct batch batch = {to, from, bytes, count, attributes, first, attribute_count};
    return is_legacy(stream) ? CUDA_ERROR_INVALID_VALUE : run(&batch, failed, stream);
}

API CUresult cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
                                        size_t count, CUmemcpyAttributes *attributes, size_t *first,
                                        size_t attribute_count, CUstream stream)
{
    struct batch batch = {to, from, bytes, count, attributes, first, attribute_count};
    return run(&batch, NULL, stream);
}

API CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
                                   CUmemcpyAttributes *attributes, size_t *first,
                                   size_t attribute_count, CUstream stream)
{
    struct batch batch = {to, from, bytes, count, attributes, first, attribute_count};
    return is_legacy(stream) ? CUDA_ERROR_INVALID_VALUE : run(&batch, NULL, stream);
}

API CUresult cuMemcpyWithAttributesAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                         CUmemcpyAttributes *attributes, CUstream stream)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    if (result == CUDA_SUCCESS && (attributes == NULL || !valid(attributes)))
        result = CUDA_ERROR_INVALID_VALUE;
    return result == CUDA_SUCCESS ? cuMemcpyAsync(to, from, bytes, stream) : result;
}
ALSO(cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync_ptsz);
