/* Facts about a real driver and GPU, one JSON line each: what the simulated ones are to do alike.
 *
 *     gpu_facts times                    events, calls, markers, the queue, NVML's latency
 *     gpu_facts memory                   what contexts, allocations, pools and stacks take
 *     gpu_facts slices SECONDS           when this process had the GPU, seen from inside a kernel
 *     gpu_facts ping SECONDS             launches of an empty kernel now and then, to their end
 *     gpu_facts load MS PERCENT SECONDS  kernels of so many ms, so much of the time
 *     gpu_facts watch SECONDS            raw rows of nvmlDeviceGetProcessUtilization, 20 looks/s
 *
 * No header of CUDA, and no more than 2 GiB of the GPU. Each fact stands for itself: a call that
 * the driver lacks or refuses ends no other fact, and shows as "result" in its own.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long u64;
typedef int (*call)();

#define MIB (1024.0 * 1024.0)

enum {
    ABSENT = -1,
    UNSEEN = -2, /* results of ours: what was waited for did not come; the stream ran empty */
    EMPTY = -3,
    NOT_READY = 600,
    MAJOR = 75, /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR */
    MINOR = 76,
    NEWEST = 80, /* what PTX 7.0 can name; a driver compiles it for every later GPU */
    NON_BLOCKING = 1,
    NO_TIMING = 2,
    MAPPED = 2,   /* CU_MEMHOSTALLOC_DEVICEMAP */
    RESERVED = 5, /* CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT */
    STACK = 0,    /* CU_LIMIT_STACK_SIZE */
    ROWS = 256,
    REPEAT = 400, /* how often a call is measured; of NVML: */
    SELDOM = 100,
    SMS = 132, /* of an H100; others have fewer, or are full enough */
    WARM_UP_US = 300000,
};

static void *cuda, *ml, *context, *module, *empty, *spin, *jumps, *handle;
static int device, failed;

static call find(void *library, const char *name)
{
    return library != NULL ? (call)dlsym(library, name) : NULL;
}

/* Any function of the driver: its answer, ABSENT if there is none of that name. The last error
 * belongs to the fact that is printed next. */
#define CU(name, ...)                                                                              \
    ({                                                                                             \
        static call function_;                                                                     \
        if (function_ == NULL)                                                                     \
            function_ = find(cuda, #name);                                                         \
        int result_ = function_ != NULL ? function_(__VA_ARGS__) : ABSENT;                         \
        if (result_ != 0 && result_ != NOT_READY)                                                  \
            failed = result_;                                                                      \
        result_;                                                                                   \
    })

#define ML(name, ...)                                                                              \
    ({                                                                                             \
        call function_ = find(ml, #name);                                                          \
        function_ != NULL ? function_(__VA_ARGS__) : ABSENT;                                       \
    })

/* spin: so many rounds, so that time away from the GPU is no progress; the simulated driver knows
 * the name, and takes a round for a nanosecond. jumps: one thread reads the GPU's clock for
 * `length` ns, or until it has noted `most` times that it stood still for `least` ns or more. */
static const char PTX[] =
    ".version 7.0\n.target sm_%d\n.address_size 64\n"
    ".visible .entry empty()\n{\n ret;\n}\n"
    ".visible .entry spin(.param .u64 rounds)\n{\n"
    " .reg .u64 %%rd<4>;\n .reg .f32 %%f<3>;\n .reg .pred %%p<3>;\n"
    " ld.param.u64 %%rd1, [rounds];\n mov.u64 %%rd2, 0;\n mov.f32 %%f1, 0f3F800001;\n"
    "again:\n fma.rn.f32 %%f1, %%f1, %%f1, %%f1;\n add.u64 %%rd2, %%rd2, 1;\n"
    " setp.lt.u64 %%p1, %%rd2, %%rd1;\n @%%p1 bra again;\n"
    " setp.eq.f32 %%p2, %%f1, 0f00000000;\n @%%p2 trap;\n ret;\n}\n"
    ".visible .entry jumps(.param .u64 out, .param .u64 length, .param .u64 least,"
    " .param .u64 most)\n{\n"
    " .reg .u64 %%rd<16>;\n .reg .pred %%p<4>;\n"
    " ld.param.u64 %%rd1, [out];\n ld.param.u64 %%rd2, [length];\n"
    " ld.param.u64 %%rd3, [least];\n ld.param.u64 %%rd4, [most];\n"
    " cvta.to.global.u64 %%rd1, %%rd1;\n mov.u64 %%rd5, 0;\n"
    " mov.u64 %%rd6, %%globaltimer;\n mov.u64 %%rd7, %%rd6;\n st.global.u64 [%%rd1], %%rd6;\n"
    "look:\n mov.u64 %%rd8, %%globaltimer;\n sub.u64 %%rd9, %%rd8, %%rd7;\n"
    " setp.lt.u64 %%p1, %%rd9, %%rd3;\n @%%p1 bra same;\n"
    " add.u64 %%rd5, %%rd5, 1;\n shl.b64 %%rd10, %%rd5, 4;\n add.u64 %%rd10, %%rd10, %%rd1;\n"
    " st.global.u64 [%%rd10], %%rd7;\n st.global.u64 [%%rd10+8], %%rd8;\n"
    " setp.ge.u64 %%p2, %%rd5, %%rd4;\n @%%p2 bra done;\n"
    "same:\n mov.u64 %%rd7, %%rd8;\n sub.u64 %%rd11, %%rd8, %%rd6;\n"
    " setp.lt.u64 %%p3, %%rd11, %%rd2;\n @%%p3 bra look;\n"
    "done:\n st.global.u64 [%%rd1+8], %%rd8;\n ret;\n}\n";

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The end of a fact's line: with the error of a call that it needed. */
static void end_fact(void)
{
    if (failed != 0)
        printf(",\"result\":%d", failed);
    printf("}\n");
    failed = 0;
}

static void print_spread(const char *fact, double *values, int count, const char *unit)
{
    double sum = 0;
    printf("{\"fact\":\"%s\",\"unit\":\"%s\",\"n\":%d", fact, unit, count);
    if (failed == 0 && count > 0) {
        qsort(values, (size_t)count, sizeof *values, by_value);
        for (int i = 0; i < count; i++)
            sum += values[i];
        printf(",\"min\":%.4f,\"p10\":%.4f,\"p50\":%.4f,\"p90\":%.4f,\"p99\":%.4f,\"max\":%.4f,"
               "\"mean\":%.4f",
               values[0], values[count / 10], values[count / 2], values[count * 9 / 10],
               values[count * 99 / 100], values[count - 1], sum / count);
    }
    end_fact();
}

static void print_value(const char *fact, double value, const char *unit)
{
    printf("{\"fact\":\"%s\",\"unit\":\"%s\",\"value\":%.4f", fact, unit, value);
    end_fact();
}

/* A fact's name, until the next one is made. */
#define NAMED(...) (snprintf(name, sizeof name, __VA_ARGS__), name)
static char name[128];

static int start(void)
{
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (cuda == NULL)
        return ABSENT;
    return CU(cuInit, 0) || CU(cuDeviceGet, &device, 0);
}

static int load(void)
{
    static char text[sizeof PTX + 64];
    int major = 0, minor = 0;
    CU(cuDeviceGetAttribute, &major, MAJOR, device);
    CU(cuDeviceGetAttribute, &minor, MINOR, device);
    int capability = major * 10 + minor;
    snprintf(text, sizeof text, PTX, capability < NEWEST ? capability : NEWEST);
    return CU(cuModuleLoadData, &module, text) ||
           CU(cuModuleGetFunction, &empty, module, "empty") ||
           CU(cuModuleGetFunction, &spin, module, "spin") ||
           CU(cuModuleGetFunction, &jumps, module, "jumps");
}

static int run(void *function, int blocks, int threads, void *stream, void **parameters)
{
    return CU(cuLaunchKernel, function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, NULL);
}

/* One thread that is busy for so many rounds. */
static void run_spin(void *stream, u64 rounds)
{
    void *parameters[] = {&rounds};
    run(spin, 1, 1, stream, parameters);
}

static void synchronize(void)
{
    CU(cuCtxSynchronize);
}

static void *new_event(unsigned flags)
{
    void *event = NULL;
    CU(cuEventCreate, &event, flags);
    return event;
}

/* NVML's. */
struct process_memory {
    unsigned pid, pad;
    u64 bytes;
    unsigned instance, part;
};
struct gpu_memory {
    u64 total, left, used;
};
struct rates {
    unsigned gpu, memory;
};
struct utilization {
    unsigned pid;
    u64 stamp;
    unsigned sm, memory, encoder, decoder;
};

/* Bytes, as NVML says of this process and of the GPU, and CUDA of what is free; -1 if it does not
 * say. */
struct held {
    double process, gpu, left;
};

/* NVML numbers GPUs by bus id, as CUDA does here; of those it knows no choice. */
static void find_handle(void)
{
    const char *chosen = getenv("CUDA_VISIBLE_DEVICES");
    if (chosen != NULL && strncmp(chosen, "GPU-", 4) == 0)
        ML(nvmlDeviceGetHandleByUUID, chosen, &handle);
    else
        ML(nvmlDeviceGetHandleByIndex_v2, chosen != NULL ? atoi(chosen) : 0, &handle);
}

static struct held held(void)
{
    struct process_memory rows[ROWS];
    struct gpu_memory memory = {0};
    unsigned count = ROWS;
    size_t left = 0, total = 0;
    struct held found = {-1, -1, -1};
    if (handle == NULL)
        find_handle();
    if (handle != NULL && ML(nvmlDeviceGetComputeRunningProcesses_v3, handle, &count, rows) == 0)
        for (unsigned i = 0; i < count && i < ROWS; i++)
            if (rows[i].pid == (unsigned)getpid())
                found.process = (double)rows[i].bytes;
    if (handle != NULL && ML(nvmlDeviceGetMemoryInfo, handle, &memory) == 0)
        found.gpu = (double)memory.used;
    if (context != NULL && CU(cuMemGetInfo_v2, &left, &total) == 0)
        found.left = (double)left;
    return found;
}

static struct held print_held(const char *after, struct held before)
{
    struct held now = held();
    printf("{\"fact\":\"memory, %s\",\"process_mib\":%.3f,\"gpu_mib\":%.3f,"
           "\"free_mib\":%.3f,\"process_more_mib\":%.3f,\"gpu_more_mib\":%.3f",
           after, now.process / MIB, now.gpu / MIB, now.left / MIB,
           (now.process - before.process) / MIB, (now.gpu - before.gpu) / MIB);
    end_fact();
    return now;
}

static void print_granularity(void)
{
    static const size_t sizes[] = {1,       512,     4096,    65536,   262144,  524288,  786432,
                                   1048576, 1048577, 1572864, 2097152, 2097153, 3145728, 4194304};
    enum { MANY = 64 };
    for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        u64 at[MANY] = {0};
        struct held before = held();
        double begun = now_us();
        for (int i = 0; i < MANY; i++)
            CU(cuMemAlloc_v2, &at[i], sizes[s]);
        double alloc_us = (now_us() - begun) / MANY;
        struct held after = held();
        begun = now_us();
        for (int i = 0; i < MANY; i++)
            if (at[i] != 0)
                CU(cuMemFree_v2, at[i]);
        printf("{\"fact\":\"cuMemAlloc, %zu B\",\"each_process\":%.0f,\"each_free\":%.0f,"
               "\"alloc_us\":%.2f,\"free_us\":%.2f",
               sizes[s], (after.process - before.process) / MANY, (before.left - after.left) / MANY,
               alloc_us, (now_us() - begun) / MANY);
        end_fact();
    }
}

static void print_managed_and_pinned(void)
{
    static const size_t size = (size_t)256 << 20;
    u64 managed = 0;
    void *pinned = NULL;
    struct held before = held();
    CU(cuMemAllocManaged, &managed, size, 1);
    before = print_held("256 MiB managed, untouched", before);
    if (managed != 0)
        CU(cuMemsetD8_v2, managed, 1, size);
    synchronize();
    before = print_held("256 MiB managed, touched by the GPU", before);
    if (managed != 0)
        CU(cuMemFree_v2, managed);
    before = print_held("managed freed", before);
    CU(cuMemHostAlloc, &pinned, size, 0);
    print_held("256 MiB pinned host memory", before);
    if (pinned != NULL)
        CU(cuMemFreeHost, pinned);
}

static void print_pool(void)
{
    static const size_t sizes[] = {1, 1 << 20, 31 << 20, 33 << 20, 64 << 20, 100 << 20};
    enum { MANY = sizeof sizes / sizeof *sizes };
    void *pool = NULL, *stream = NULL;
    u64 got[MANY] = {0}, reserved = 0, last = 0;
    struct held before = held();
    CU(cuStreamCreate, &stream, NON_BLOCKING);
    CU(cuDeviceGetDefaultMemPool, &pool, device);
    for (int i = 0; i < MANY; i++) {
        CU(cuMemAllocAsync, &got[i], sizes[i], stream);
        CU(cuMemPoolGetAttribute, pool, RESERVED, &reserved);
        printf("{\"fact\":\"pool, %zu B\",\"grew\":%lld", sizes[i], (long long)(reserved - last));
        end_fact();
        last = reserved;
    }
    before = print_held("pool", before);
    for (int i = 0; i < MANY; i++)
        if (got[i] != 0)
            CU(cuMemFreeAsync, got[i], stream);
    CU(cuStreamSynchronize, stream);
    CU(cuMemPoolGetAttribute, pool, RESERVED, &reserved);
    print_value("pool keeps after all is freed and waited for", (double)reserved, "B");
    CU(cuMemPoolTrimTo, pool, (size_t)0);
    print_held("pool trimmed", before);
    CU(cuStreamDestroy_v2, stream);
}

static void print_stack(void)
{
    size_t stack = 0;
    struct held before = held();
    CU(cuCtxGetLimit, &stack, STACK);
    print_value("stack limit", (double)stack, "B");
    CU(cuCtxSetLimit, STACK, (size_t)16384);
    before = print_held("stack limit 16 KiB", before);
    run(empty, 1, 1, NULL, NULL);
    synchronize();
    before = print_held("a launch after that", before);
    CU(cuCtxSetLimit, STACK, stack);
    print_held("stack limit as before", before);
}

static float elapsed_us(void *from, void *to)
{
    float ms = -1;
    CU(cuEventElapsedTime, &ms, from, to);
    return ms * 1000;
}

/* Rounds of spin that take so long, by one thread or by all of a GPU's SMs. Before that the GPU is
 * kept full until its clock is up. */
static u64 rounds_for(double microseconds, int blocks, int threads)
{
    u64 rounds = 1000000;
    void *parameters[] = {&rounds}, *before = new_event(0), *after = new_event(0);
    for (double begun = now_us(); now_us() - begun < WARM_UP_US; synchronize())
        run(spin, SMS, 128, NULL, parameters);
    for (int i = 0; i < 3; i++) {
        CU(cuEventRecord, before, NULL);
        run(spin, blocks, threads, NULL, parameters);
        CU(cuEventRecord, after, NULL);
        synchronize();
    }
    double took = elapsed_us(before, after);
    return took > 0 ? (u64)((double)rounds * microseconds / took) + 1 : rounds;
}

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

static void print_times(void)
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

static void print_slices(double seconds)
{
    enum { MOST = 20000 };
    static u64 got[2 * (MOST + 1)];
    u64 out = 0, length = (u64)(seconds * 1e9), least = 3000, most = MOST;
    void *parameters[] = {&out, &length, &least, &most};
    CU(cuMemAlloc_v2, &out, sizeof got);
    CU(cuMemsetD8_v2, out, 0, sizeof got);
    run(jumps, 1, 1, NULL, parameters);
    synchronize();
    CU(cuMemcpyDtoH_v2, got, out, sizeof got);
    printf("{\"fact\":\"slices\",\"pid\":%d,\"begin\":%llu,\"end\":%llu,\"away\":[", getpid(),
           got[0], got[1]);
    for (u64 i = 1; i <= MOST && got[2 * i] != 0; i++)
        printf("%s[%llu,%llu]", i > 1 ? "," : "", got[2 * i], got[2 * i + 1]);
    printf("]");
    end_fact();
}

/* From its launch until the host knows that an empty kernel has ended, with a pause before each:
 * never the same one, so that others' slices are met at any point. */
static void run_ping(double seconds)
{
    enum { MOST = 100000 };
    static double values[MOST];
    double begun = now_us();
    int count = 0;
    for (double now = begun; count < MOST && now - begun < seconds * 1e6; count++) {
        usleep(200 + (unsigned)count * 997 % 4000);
        now = now_us();
        run(empty, 1, 1, NULL, NULL);
        synchronize();
        values[count] = now_us() - now;
    }
    printf("{\"fact\":\"ping\",\"pid\":%d,\"begun_us\":%.0f,\"ended_us\":%.0f}\n", getpid(), begun,
           now_us());
    print_spread("empty kernel, launch to done", values, count, "us");
}

/* percent 0: one kernel, and then a context that does nothing. 100: no pause but one in ten
 * kernels, for the host to learn how far they are. */
static void run_load(double ms, double percent, double seconds)
{
    u64 rounds = rounds_for(ms * 1000, SMS, 128);
    void *parameters[] = {&rounds};
    printf("{\"fact\":\"ready\",\"pid\":%d,\"process_mib\":%.3f}\n", getpid(),
           held().process / MIB);
    double begun = now_us();
    int done = 0;
    while (now_us() - begun < seconds * 1e6) {
        double before = now_us();
        for (int i = 0; i < (percent < 100 ? 1 : 10); i++, done++)
            run(spin, SMS, 128, NULL, parameters);
        synchronize();
        if (percent <= 0)
            usleep((unsigned)(seconds * 1e6));
        else if (percent < 100)
            usleep((unsigned)((now_us() - before) * (100 / percent - 1)));
    }
    printf("{\"fact\":\"load\",\"pid\":%d,\"ms\":%.3f,\"percent\":%.0f,\"kernels\":%d,"
           "\"begun_us\":%.0f,\"ended_us\":%.0f",
           getpid(), ms, percent, done, begun, now_us());
    end_fact();
}

static u64 wall_us(void)
{
    struct timeval time;
    gettimeofday(&time, NULL);
    return (u64)time.tv_sec * 1000000 + (u64)time.tv_usec;
}

/* Rows as [pid, stamp, SM percent]; asked each time for what is newer than the newest stamp. */
static void watch(double seconds)
{
    static struct utilization rows[ROWS];
    u64 since = wall_us() - 1000000, until = wall_us() + (u64)(seconds * 1e6);
    held(); /* finds the GPU's handle */
    for (u64 wall = wall_us(); wall < until; wall = wall_us()) {
        struct rates rates = {0};
        unsigned count = ROWS;
        memset(rows, 0, sizeof rows);
        int answer = ML(nvmlDeviceGetProcessUtilization, handle, rows, &count, since);
        ML(nvmlDeviceGetUtilizationRates, handle, &rates);
        printf("{\"fact\":\"utilisation\",\"at\":%llu,\"answer\":%d,\"gpu\":%u,\"since\":%llu,"
               "\"rows\":[",
               wall, answer, rates.gpu, since);
        const char *separator = "";
        for (unsigned i = 0; answer == 0 && i < count && i < ROWS; i++) {
            if (rows[i].pid == 0) /* a row that the driver left empty */
                continue;
            printf("%s[%u,%llu,%u]", separator, rows[i].pid, rows[i].stamp, rows[i].sm);
            separator = ",";
            if (rows[i].stamp > since && rows[i].stamp < wall + 1000000)
                since = rows[i].stamp;
        }
        printf("]}\n");
        usleep(50000);
    }
}

static void print_memory(struct held before)
{
    void *streams[8];
    run(empty, 1, 1, NULL, NULL);
    synchronize();
    before = print_held("first launch", before);
    for (int i = 0; i < 8; i++)
        if (CU(cuStreamCreate, &streams[i], NON_BLOCKING) == 0)
            run(empty, 1, 1, streams[i], NULL);
    synchronize();
    print_held("8 streams used", before);
    print_granularity();
    print_managed_and_pinned();
    print_pool();
    print_stack();
}

static int with_context(const char *what, char **words)
{
    struct held before = {0, 0, 0};
    int memory = strcmp(what, "memory") == 0, version = 0;
    if (start() != 0)
        return printf("{\"fact\":\"cuInit\",\"result\":%d}\n", failed), 1;
    CU(cuDriverGetVersion, &version);
    print_value("cuDriverGetVersion", version, "");
    if (memory)
        before = print_held("cuInit", held());
    double begun = now_us();
    CU(cuDevicePrimaryCtxRetain, &context, device);
    CU(cuCtxSetCurrent, context);
    print_value("context made in", (now_us() - begun) / 1000, "ms");
    if (memory)
        before = print_held("context", before);
    begun = now_us();
    if (load() != 0)
        return printf("{\"fact\":\"module\",\"result\":%d}\n", failed), 1;
    print_value("PTX compiled and loaded in", (now_us() - begun) / 1000, "ms");
    if (memory)
        print_memory(print_held("module", before));
    else if (strcmp(what, "times") == 0)
        print_times();
    else if (strcmp(what, "slices") == 0)
        print_slices(atof(words[0]));
    else if (strcmp(what, "ping") == 0)
        run_ping(atof(words[0]));
    else
        run_load(atof(words[0]), atof(words[1]), atof(words[2]));
    return 0;
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        int words;
    } modes[] = {{"times", 0}, {"memory", 0}, {"slices", 1},
                 {"ping", 1},  {"load", 3},   {"watch", 1}};
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (count != modes[i].words + 2 || strcmp(words[1], modes[i].name) != 0)
            continue;
        ml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
        if (ml != NULL)
            ML(nvmlInit_v2);
        if (strcmp(words[1], "watch") != 0)
            return with_context(words[1], words + 2);
        watch(atof(words[2]));
        return 0;
    }
    fputs("usage: gpu_facts times | memory | slices SECONDS | ping SECONDS |\n"
          "       load MS PERCENT SECONDS | watch SECONDS\n",
          stderr);
    return 2;
}
