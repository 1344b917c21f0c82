/* How long things take: events, calls, markers, the queue, NVML. */
#include "facts.h"

enum {
    MAPPED = 2,   /* CU_MEMHOSTALLOC_DEVICEMAP */
    REPEAT = 400, /* how often a call is measured; of NVML: */
    SELDOM = 100,
};

/* A fact's name, until the next one is made. */
#define NAMED(...) (snprintf(name, sizeof name, __VA_ARGS__), name)
static char name[128];

/* What a pair of events says of nothing, or of a kernel. busy: behind so many rounds of work that
 * the host is ahead; a turn in which it was not is left out, and half of them must remain. */
static void print_event_pair(const char *what, void *function, u64 rounds, void *stream, u64 busy)
{
    double values[REPEAT];
    int count = 0;
    void *parameters[] = {&rounds}, *before = new_event(0), *after = new_event(0);
    for (int i = 0; i < REPEAT; i++) {
        CU(cuStreamSynchronize, stream);
        if (busy > 0)
            run_spin(stream, busy);
        CU(cuEventRecord, before, stream);
        if (function != NULL)
            run(function, 1, 1, stream, parameters);
        CU(cuEventRecord, after, stream);
        bool late = busy > 0 && CU(cuEventQuery, before) == 0;
        CU(cuStreamSynchronize, stream);
        values[count] = elapsed_us(before, after);
        count += !late;
    }
    if (count < REPEAT / 2)
        failed = EMPTY;
    print_spread(NAMED("event pair, %s, %s stream", what, busy > 0 ? "busy" : "idle"), values,
                 count, "us");
}

static void print_event_pairs(void *stream, u64 ms)
{
    for (int i = 0; i < 200; i++)
        run(empty, 1, 1, stream, NULL);
    synchronize();
    for (int busy = 0; busy < 2; busy++) {
        print_event_pair("nothing", NULL, 0, stream, busy * ms / 10);
        print_event_pair("empty kernel", empty, 0, stream, busy * ms / 10);
        print_event_pair("kernel of 5 us", spin, ms / 200, stream, busy * ms / 10);
        print_event_pair("kernel of 50 us", spin, ms / 20, stream, busy * ms / 10);
        print_event_pair("kernel of 500 us", spin, ms / 2, stream, busy * ms / 10);
    }
}

/* What a call costs the thread that makes it. before: not measured. */
#define COST(fact, before, ...) COST_OF(REPEAT, fact, before, __VA_ARGS__)
#define COST_OF(count, fact, before, ...)                                                          \
    do {                                                                                           \
        double values_[count];                                                                     \
        for (int i = 0; i < count; i++) {                                                          \
            before;                                                                                \
            double begun_ = now_us();                                                              \
            __VA_ARGS__;                                                                           \
            values_[i] = now_us() - begun_;                                                        \
        }                                                                                          \
        print_spread(fact, values_, count, "us");                                                  \
    } while (0)

/* A word of host memory that the GPU writes, and when a function of the host began. */
static volatile unsigned *word;
static u64 word_on_gpu;
static volatile double host_began;

static void note_host_call(void *nothing)
{
    (void)nothing;
    host_began = now_us();
}

/* Before each of REPEAT calls: an empty stream, or one with so many rounds of work before them. */
static void prepare(void *stream, u64 busy, int turn)
{
    if (turn == 0 || busy == 0)
        CU(cuStreamSynchronize, stream);
    if (turn == 0 && busy > 0)
        run_spin(stream, busy);
    if (turn == REPEAT - 1 && busy > 0 && CU(cuStreamQuery, stream) == 0)
        failed = EMPTY;
}

static void print_call_costs(void *stream, u64 ms)
{
    void *event = new_event(0), *first = new_event(0), *untimed = new_event(NO_TIMING);
    void *current = NULL;
    int status = 0, mode = 2;
    u64 id = 0;
    for (int busy = 0; busy < 2; busy++) {
#define QUEUED(name, call)                                                                         \
    COST(NAMED("%s, %s stream", name, busy ? "busy" : "idle"), prepare(stream, busy * 20 * ms, i), \
         call)
        QUEUED("cuLaunchKernel, empty", run(empty, 1, 1, stream, NULL));
        QUEUED("cuEventRecord, timing", CU(cuEventRecord, event, stream));
        QUEUED("cuEventRecord, no timing", CU(cuEventRecord, untimed, stream));
        QUEUED("cuStreamWriteValue32", CU(cuStreamWriteValue32_v2, stream, word_on_gpu, 0, 0));
        QUEUED("cuLaunchHostFunc", CU(cuLaunchHostFunc, stream, note_host_call, NULL));
        QUEUED("cuStreamQuery", CU(cuStreamQuery, stream));
    }
    run_spin(stream, 20 * ms);
    CU(cuEventRecord, first, stream);
    CU(cuEventRecord, event, stream);
    COST("cuEventQuery, not ready", , if (CU(cuEventQuery, event) == 0) failed = EMPTY);
    CU(cuStreamSynchronize, stream);
    COST("cuEventQuery, done", , CU(cuEventQuery, event));
    COST("cuEventElapsedTime", , elapsed_us(first, event));
    COST("cuStreamIsCapturing", , CU(cuStreamIsCapturing, stream, &status));
    COST("cuThreadExchangeStreamCaptureMode", , CU(cuThreadExchangeStreamCaptureMode, &mode));
    COST("cuCtxGetCurrent", , CU(cuCtxGetCurrent, &current));
    COST("cuCtxGetId", , CU(cuCtxGetId, context, &id));
}

/* Ways to tell the host how far a stream has come. */
enum marker { NOTHING, EVENT, VALUE, HOST_CALL };
static const char *const marker_names[] = {"no marker", "event", "value", "host function"};

static void mark(enum marker marker, void *stream, void *event, unsigned value)
{
    if (marker == EVENT)
        CU(cuEventRecord, event, stream);
    else if (marker == VALUE)
        CU(cuStreamWriteValue32_v2, stream, word_on_gpu, value, 0);
    else if (marker == HOST_CALL)
        CU(cuLaunchHostFunc, stream, note_host_call, NULL);
}

/* From the call, or from the launch of so many rounds before it, until the host knows; a function
 * of the host: until it begins. */
static double seen_after(enum marker marker, void *stream, void *event, u64 rounds)
{
    enum { LONGEST = 100000 };
    unsigned value = *word + 1;
    host_began = 0;
    double begun = now_us(), now = begun;
    if (rounds > 0)
        run_spin(stream, rounds);
    mark(marker, stream, event, value);
    for (bool seen = false; !seen && failed == 0; now = now_us()) {
        seen = marker == EVENT   ? CU(cuEventQuery, event) == 0
               : marker == VALUE ? *word == value
                                 : host_began != 0;
        if (now - begun > LONGEST)
            failed = UNSEEN;
    }
    return marker == HOST_CALL ? host_began - begun : now - begun;
}

static void print_marker_latency(enum marker marker, void *stream, void *event, u64 rounds)
{
    double values[REPEAT];
    int count = 0;
    while (count < REPEAT && failed == 0) {
        values[count++] = seen_after(marker, stream, event, rounds);
        CU(cuStreamSynchronize, stream);
    }
    print_spread(NAMED("%s seen, %s", marker_names[marker], rounds > 0 ? "behind 50 us" : "idle"),
                 values, count, "us");
}

/* GPU time of each of many short kernels in a row with a marker behind each, which the host has
 * queued before the first begins. */
static void print_marker_loss(enum marker marker, void *stream, void *event, u64 ms)
{
    enum { MANY = 300, TIMES = 20 };
    double values[TIMES];
    void *before = new_event(0), *after = new_event(0);
    for (int turn = 0; turn < TIMES; turn++) {
        run_spin(stream, 10 * ms);
        CU(cuEventRecord, before, stream);
        for (int i = 0; i < MANY; i++) {
            run_spin(stream, ms / 200);
            mark(marker, stream, event, 0);
        }
        CU(cuEventRecord, after, stream);
        if (CU(cuEventQuery, before) == 0)
            failed = EMPTY;
        CU(cuStreamSynchronize, stream);
        values[turn] = elapsed_us(before, after) / MANY;
    }
    print_spread(NAMED("5 us kernels in a queue, %s", marker_names[marker]), values, TIMES, "us");
}

/* How many launches until the driver makes the host wait? */
static void print_queue_depth(void *stream, u64 ms)
{
    int queued = 0;
    run_spin(stream, 1000 * ms);
    for (double begun = now_us(); queued < 20000; queued++) {
        double before = now_us();
        run(empty, 1, 1, stream, NULL);
        if (now_us() - before > 5000 || now_us() - begun > 3e6)
            break;
    }
    print_value("launches queued before the host waits", queued, "");
    synchronize();
}

static void print_nvml_costs(void)
{
    struct process_memory rows[ROWS];
    struct utilization used[ROWS];
    struct gpu_memory memory;
    struct rates rates;
    unsigned size, clock;
#define NVML_COST(name, ...)                                                                       \
    COST_OF(SELDOM, #name, size = ROWS, failed = ML(name, handle, __VA_ARGS__))
    NVML_COST(nvmlDeviceGetComputeRunningProcesses_v3, &size, rows);
    NVML_COST(nvmlDeviceGetProcessUtilization, used, &size, 0ULL);
    NVML_COST(nvmlDeviceGetUtilizationRates, &rates);
    NVML_COST(nvmlDeviceGetMemoryInfo, &memory);
    NVML_COST(nvmlDeviceGetClockInfo, 1, &clock);
}

void print_times(void)
{
    static unsigned unmapped;
    void *stream = NULL, *page = NULL, *untimed = new_event(NO_TIMING);
    u64 ms = rounds_for(1000, 1, 1);
    CU(cuStreamCreate, &stream, NON_BLOCKING);
    print_event_pairs(stream, ms);
    if (CU(cuMemHostAlloc, &page, (size_t)4096, MAPPED) == 0)
        CU(cuMemHostGetDevicePointer_v2, &word_on_gpu, page, 0);
    word = page != NULL ? page : &unmapped;
    print_value("device address of host memory", word_on_gpu != 0, "");
    print_call_costs(stream, ms);
    for (enum marker marker = EVENT; marker <= HOST_CALL; marker++) {
        print_marker_latency(marker, stream, untimed, 0);
        print_marker_latency(marker, stream, untimed, ms / 20);
    }
    for (enum marker marker = NOTHING; marker <= VALUE; marker++)
        print_marker_loss(marker, stream, untimed, ms);
    print_queue_depth(stream, ms);
    held(); /* finds the GPU's handle */
    print_nvml_costs();
}
