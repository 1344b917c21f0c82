/* Calls of our own to the driver, in a thread of the program.
 *
 * Many calls are "unsafe under capture": the driver refuses them (900) and invalidates the capture
 * (901) if the thread captures a stream, or if any thread does in the global mode, which is
 * PyTorch's. In the relaxed mode it does neither. So each call that is not the hooked one itself
 * lies between these two; only calls that read handles need not (tests/native/shim/entry/
 * test_own_calls.py has the list). They may be nested. Nothing waits in between.
 */
#ifndef SHIM_CUDA_OWN_CALLS_H
#define SHIM_CUDA_OWN_CALLS_H

#include "cuda_hooks.h"

#include <stdbool.h>

/* Returns the thread's mode, for own_calls_end(). Drivers before 10.1 have none. */
static inline CUstreamCaptureMode own_calls_begin(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result = REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    return result == CUDA_SUCCESS ? mode : CU_STREAM_CAPTURE_MODE_RELAXED;
}

static inline void own_calls_end(CUstreamCaptureMode mode)
{
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
}

/* One of which nothing is returned: what takes back what the hooked call did. */
#define OWN_CALL(call)                                                                             \
    do {                                                                                           \
        CUstreamCaptureMode own_mode = own_calls_begin();                                          \
        call;                                                                                      \
        own_calls_end(own_mode);                                                                   \
    } while (false)

#endif
