/* Attributes of streams: kept and told. None but the priority changes anything, and that only what
 * is told of it. */
#include "cuda/stream/stream.h"
#include <string.h>

enum attribute {
    ACCESS_WINDOW = 1,
    SYNCHRONIZATION = 3,
    PRIORITY = 8,
    DOMAIN_MAP = 9,
    DOMAIN = 10,
};

enum { PERSISTING = 2, LAST_POLICY = 4, AUTO = 1 };

struct access_window {
    void *start;
    size_t bytes;
    float ratio;
    int hits, misses;
};

union attribute_value {
    unsigned char bytes[64];
    struct access_window window;
    unsigned number;
    int priority;
    struct {
        unsigned char standard, remote;
    } map;
};

/* Where the attributes of a stream are kept, default streams' by device. */
static struct stream_attributes *kept_of(struct driver *driver, struct stream *stream, int device)
{
    return stream != NULL ? &stream->attributes : &driver->attributes[device];
}

static CUresult find(CUstream handle, const void *value, struct driver **driver,
                     struct stream **stream, struct stream_attributes **kept)
{
    int device;
    CUresult result = queue_find(handle, driver, stream, &device);
    if (result == CUDA_SUCCESS)
        *kept = kept_of(*driver, *stream, device);
    return result == CUDA_SUCCESS && value == NULL ? CUDA_ERROR_INVALID_VALUE : result;
}

API CUresult cuStreamGetAttribute(CUstream handle, int attribute, union attribute_value *out)
{
    struct driver *driver;
    struct stream *stream;
    struct stream_attributes *kept;
    CUresult result = find(handle, out, &driver, &stream, &kept);
    if (result != CUDA_SUCCESS)
        return result;
    memset(out, 0, sizeof *out);
    switch (attribute) {
    case ACCESS_WINDOW:
        memcpy(&out->window, kept->window, sizeof out->window);
        return CUDA_SUCCESS;
    case SYNCHRONIZATION:
        out->number = kept->policy != 0 ? kept->policy : AUTO;
        return CUDA_SUCCESS;
    case PRIORITY:
        out->priority = stream != NULL ? stream->priority : 0;
        return CUDA_SUCCESS;
    case DOMAIN_MAP:
        out->map.standard = kept->mapped ? kept->standard_domain : 0;
        out->map.remote = kept->mapped ? kept->remote_domain : 1;
        return CUDA_SUCCESS;
    case DOMAIN:
        out->number = kept->domain;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}
ALSO(cuStreamGetAttribute, cuStreamGetAttribute_ptsz);

static bool window_valid(const struct access_window *window)
{
    return window->ratio >= 0 && window->ratio <= 1 && window->hits >= 0 &&
           window->hits <= PERSISTING && window->misses >= 0 && window->misses < PERSISTING;
}

API CUresult cuStreamSetAttribute(CUstream handle, int attribute,
                                  const union attribute_value *value)
{
    struct driver *driver;
    struct stream *stream;
    struct stream_attributes *kept;
    CUresult result = find(handle, value, &driver, &stream, &kept);
    if (result != CUDA_SUCCESS)
        return result;
    switch (attribute) {
    case ACCESS_WINDOW:
        if (!window_valid(&value->window))
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(kept->window, &value->window, sizeof value->window);
        return CUDA_SUCCESS;
    case SYNCHRONIZATION:
        if (value->number < AUTO || value->number > LAST_POLICY)
            return CUDA_ERROR_INVALID_VALUE;
        kept->policy = value->number;
        return CUDA_SUCCESS;
    case PRIORITY:
        if (stream != NULL)
            stream->priority = stream_priority(value->priority);
        return CUDA_SUCCESS;
    case DOMAIN_MAP:
        kept->mapped = true;
        kept->standard_domain = value->map.standard;
        kept->remote_domain = value->map.remote;
        return CUDA_SUCCESS;
    case DOMAIN:
        if (value->number > 1)
            return CUDA_ERROR_INVALID_VALUE;
        kept->domain = value->number;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}
ALSO(cuStreamSetAttribute, cuStreamSetAttribute_ptsz);

API CUresult cuStreamCopyAttributes(CUstream to, CUstream from)
{
    struct driver *driver;
    struct stream *target, *source;
    struct stream_attributes *target_kept, *source_kept;
    CUresult result = find(to, &to, &driver, &target, &target_kept);
    if (result == CUDA_SUCCESS)
        result = find(from, &from, &driver, &source, &source_kept);
    if (result != CUDA_SUCCESS)
        return result;
    *target_kept = *source_kept;
    if (target != NULL)
        target->priority = source != NULL ? source->priority : 0;
    return CUDA_SUCCESS;
}
ALSO(cuStreamCopyAttributes, cuStreamCopyAttributes_ptsz);
