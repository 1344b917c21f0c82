/* What captures forbid. */
#include "cuda/capture/capture.h"

static _Thread_local int thread_mode;

const void *capture_thread(void)
{
    return &thread_mode;
}

API CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    if (mode == NULL || *mode < MODE_GLOBAL || *mode > MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    int former = thread_mode;
    thread_mode = *mode;
    *mode = former;
    return CUDA_SUCCESS;
}

/* Does the capture mind a call on the legacy stream, or for the whole device? */
static bool blocks(const struct capture *capture, int device)
{
    enum { NON_BLOCKING = 1 };
    for (const struct stream *stream = capture->streams; stream; stream = stream->also_captured)
        if (stream->device == device && (stream->flags & NON_BLOCKING) == 0)
            return true;
    return false;
}

CUresult capture_asked(struct driver *driver, struct stream *stream, int device)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&driver->captures_mutex);
    if (capture_has(stream)) {
        stream->capture->invalid = true;
        result = (CUresult)ERROR_CAPTURE_UNSUPPORTED;
    }
    for (struct capture *c = stream == NULL ? driver->captures : NULL; c != NULL; c = c->next)
        if (blocks(c, device)) {
            c->invalid = true;
            result = (CUresult)ERROR_CAPTURE_IMPLICIT;
        }
    pthread_mutex_unlock(&driver->captures_mutex);
    return result;
}

CUresult capture_any(struct driver *driver, int device)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&driver->captures_mutex);
    for (struct capture *capture = driver->captures; capture != NULL; capture = capture->next)
        if (capture->origin->device == device) {
            capture->invalid = true;
            result = (CUresult)ERROR_CAPTURE_UNSUPPORTED;
        }
    pthread_mutex_unlock(&driver->captures_mutex);
    return result;
}

/* As the modes are documented. */
static bool forbids(const struct capture *capture)
{
    bool own = capture->thread == capture_thread() && capture->mode != MODE_RELAXED;
    bool global = capture->mode == MODE_GLOBAL && thread_mode == MODE_GLOBAL;
    return thread_mode != MODE_RELAXED && (own || global);
}

CUresult capture_unsafe(struct driver *driver)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&driver->captures_mutex);
    for (struct capture *capture = driver->captures; capture != NULL; capture = capture->next)
        if (forbids(capture)) {
            capture->invalid = true;
            result = (CUresult)ERROR_CAPTURE_UNSUPPORTED;
        }
    pthread_mutex_unlock(&driver->captures_mutex);
    return result;
}
