#include "cuda/timing.h"

#include "cuda/process.h"

enum {
    FAILURES = 3,                  /* in a row, and measuring ends */
    POLL_INTERVAL_NS = 100 * 1000, /* a query costs about a microsecond */
    PATIENCE_S = 30,               /* a measurement nobody could finish is given up */
    NS_PER_MS = 1000 * 1000,
};

/* Let calls through that a global capture by another thread would forbid; undo with the result. */
static CUstreamCaptureMode exchange_mode(CUstreamCaptureMode mode)
{
    CUresult result = REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    return result == CUDA_SUCCESS ? mode : CU_STREAM_CAPTURE_MODE_RELAXED;
}

/* Who is the current context? 0: none. Its number where the driver has one, for handles recur. */
static unsigned long long current_context(void)
{
    CUcontext context = NULL;
    unsigned long long number;
    if (REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS || context == NULL)
        return 0;
    CUresult result = REAL(cuCtxGetId)(context, &number);
    return result == CUDA_SUCCESS ? number : (unsigned long long)(uintptr_t)context;
}

static bool capturing(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = REAL(cuStreamIsCapturing)(stream, &status);
    if (result == CUDA_ERROR_NOT_FOUND || result == CUDA_ERROR_NOT_SUPPORTED) /* before 10.0 */
        return false;
    return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static bool hold(struct timing *timing, enum timing_phase from)
{
    /* Pairs with the release in let_go(): the new owner sees what the last one wrote. */
    return atomic_compare_exchange_strong_explicit(&timing->phase, &from, TIMING_HELD,
                                                   memory_order_acquire, memory_order_relaxed);
}

static void let_go(struct timing *timing, enum timing_phase to)
{
    atomic_store_explicit(&timing->phase, to, memory_order_release);
}

static void drop_events(struct timing *timing)
{
    if (timing->start != NULL)
        REAL(cuEventDestroy_v2)(timing->start);
    if (timing->end != NULL)
        REAL(cuEventDestroy_v2)(timing->end);
    timing->start = timing->end = NULL;
}

/* The driver would not: once may be a context that is going, more often is for good. */
static void fail(struct process *process)
{
    struct timing *timing = &process->timing;
    drop_events(timing);
    if (++timing->failures < FAILURES) {
        let_go(timing, TIMING_IDLE);
        return;
    }
    let_go(timing, TIMING_OFF);
    process_degrade(process, VCUDA_DEGRADED_TIMING);
}

static CUresult record_start(struct timing *timing, CUstream stream)
{
    CUresult result = REAL(cuEventCreate)(&timing->start, 0);
    if (result == CUDA_SUCCESS)
        result = REAL(cuEventCreate)(&timing->end, 0);
    if (result == CUDA_SUCCESS)
        result = REAL(cuEventRecord)(timing->start, stream);
    return result;
}

/* With the struct held and the capture mode relaxed. */
static bool begin_held(struct process *process, struct timing_subject subject, uint64_t now)
{
    struct timing *timing = &process->timing;
    timing->start = timing->end = NULL;
    timing->key = subject.key;
    timing->paid_ns = subject.paid_ns;
    timing->device = subject.device;
    timing->begun_ns = timing->polled_ns = now;
    timing->context = current_context();
    if (timing->context == 0 || capturing(subject.stream)) {
        let_go(timing, TIMING_IDLE);
        return false;
    }
    if (record_start(timing, subject.stream) == CUDA_SUCCESS)
        return true;
    fail(process);
    return false;
}

bool timing_begin(struct process *process, struct timing_subject subject, uint64_t now)
{
    if (!hold(&process->timing, TIMING_IDLE))
        return false;
    CUstreamCaptureMode mode = exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    bool begun = begin_held(process, subject, now);
    exchange_mode(mode);
    return begun;
}

void timing_end(struct process *process, CUstream stream, CUresult launched)
{
    struct timing *timing = &process->timing;
    CUstreamCaptureMode mode = exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    if (launched != CUDA_SUCCESS) { /* the program's error, not ours */
        drop_events(timing);
        let_go(timing, TIMING_IDLE);
    } else if (REAL(cuEventRecord)(timing->end, stream) == CUDA_SUCCESS) {
        let_go(timing, TIMING_FLYING);
    } else {
        fail(process);
    }
    exchange_mode(mode);
}

/* Correct what was paid for the measured launch, and what its kind will pay from now on. */
static void settle(struct process *process, uint64_t now, float milliseconds)
{
    struct timing *timing = &process->timing;
    struct session *session = &process->session;
    struct limiter_terms terms = limiter_terms(&session->config->limits[timing->device]);
    uint64_t measured = milliseconds > 0 ? (uint64_t)((double)milliseconds * NS_PER_MS) : 0;
    uint64_t cost = cost_record(&process->costs, timing->key, now, measured, terms.rate_ppm);
    limiter_settle(&session->books.page->meters[timing->device], terms,
                   (int64_t)(cost - timing->paid_ns));
    timing->failures = 0;
}

static void finish(struct process *process, uint64_t now)
{
    struct timing *timing = &process->timing;
    float milliseconds;
    if (REAL(cuEventElapsedTime)(&milliseconds, timing->start, timing->end) != CUDA_SUCCESS) {
        fail(process);
        return;
    }
    settle(process, now, milliseconds);
    drop_events(timing);
    let_go(timing, TIMING_IDLE);
}

static void poll_held(struct process *process, uint64_t now)
{
    struct timing *timing = &process->timing;
    CUresult result = CUDA_ERROR_NOT_READY;
    if (current_context() == timing->context) /* or it may be gone, and its events with it */
        result = REAL(cuEventQuery)(timing->end);
    if (result == CUDA_SUCCESS)
        finish(process, now);
    else if (result != CUDA_ERROR_NOT_READY)
        fail(process);
    else if (now - timing->begun_ns > UINT64_C(1000000000) * PATIENCE_S)
        let_go(timing, TIMING_IDLE); /* the events are left to their context */
    else
        let_go(timing, TIMING_FLYING);
}

void timing_poll(struct process *process, uint64_t now)
{
    struct timing *timing = &process->timing;
    if (!timing_flying(timing) || !hold(timing, TIMING_FLYING))
        return;
    if (now - timing->polled_ns < POLL_INTERVAL_NS) {
        let_go(timing, TIMING_FLYING);
        return;
    }
    timing->polled_ns = now;
    CUstreamCaptureMode mode = exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    poll_held(process, now);
    exchange_mode(mode);
}
