/* Facts about a real driver and GPU, one JSON line each: what the simulated ones are to do alike.
 *
 *     gpu_facts alone                    one process: memory, events, calls, pools, NVML's latency
 *     gpu_facts slices SECONDS           when this process had the GPU, seen from inside a kernel
 *     gpu_facts load MS PERCENT SECONDS  kernels of so many ms, so much of the time
 *     gpu_facts watch SECONDS            raw rows of nvmlDeviceGetProcessUtilization, 20 looks/s
 *
 * No header of CUDA, and no more than 2 GiB of the GPU. Each fact stands for itself: a call that
 * the driver lacks or refuses ends no other fact.
 */
#include <dlfcn.h>
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
    MAJOR = 75, /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR */
    MINOR = 76,
    NEWEST = 80, /* what PTX 7.0 can name; a driver compiles it for every later GPU */
    NON_BLOCKING = 1,
    RESERVED = 5, /* CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT */
    STACK = 0,    /* CU_LIMIT_STACK_SIZE */
    ROWS = 256,
    REPEAT = 400,
};

static void *cuda, *ml, *context, *module, *empty, *spin, *jumps, *handle;
static int device, failed;

static call find(void *library, const char *name)
{
    return library != NULL ? (call)dlsym(library, name) : NULL;
}

/* Any function of the driver: its answer, ABSENT if there is none of that name. */
#define CU(name, ...)                                                                              \
    ({                                                                                             \
        call function_ = find(cuda, #name);                                                        \
        int result_ = function_ != NULL ? function_(__VA_ARGS__) : ABSENT;                         \
        if (result_ != 0)                                                                          \
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
 * `length` ns, and notes each time that it stood still for `least` ns or more. */
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
    " setp.ge.u64 %%p2, %%rd5, %%rd4;\n @%%p2 bra same;\n"
    " add.u64 %%rd5, %%rd5, 1;\n shl.b64 %%rd10, %%rd5, 4;\n add.u64 %%rd10, %%rd10, %%rd1;\n"
    " st.global.u64 [%%rd10], %%rd7;\n st.global.u64 [%%rd10+8], %%rd8;\n"
    "same:\n mov.u64 %%rd7, %%rd8;\n sub.u64 %%rd11, %%rd8, %%rd6;\n"
    " setp.lt.u64 %%p3, %%rd11, %%rd2;\n @%%p3 bra look;\n"
    " st.global.u64 [%%rd1+8], %%rd5;\n ret;\n}\n";

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

static void print_spread(const char *fact, double *values, int count, const char *unit)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    printf("{\"fact\":\"%s\",\"unit\":\"%s\",\"n\":%d,\"min\":%.4f,\"p50\":%.4f,\"p90\":%.4f,"
           "\"max\":%.4f}\n",
           fact, unit, count, values[0], values[count / 2], values[count * 9 / 10],
           values[count - 1]);
}

static void print_value(const char *fact, double value, const char *unit)
{
    printf("{\"fact\":\"%s\",\"unit\":\"%s\",\"value\":%.4f}\n", fact, unit, value);
}

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
    static call launch;
    if (launch == NULL)
        launch = find(cuda, "cuLaunchKernel");
    return launch(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, NULL);
}

static void synchronize(void)
{
    CU(cuCtxSynchronize);
}

/* Bytes, as NVML says of this process and of the GPU, and CUDA of what is free; -1 if it does not
 * say. */
struct held {
    double process, gpu, left;
};

static struct held held(void)
{
    struct {
        unsigned pid, pad;
        u64 bytes;
        unsigned instance, part;
    } rows[ROWS];
    struct {
        u64 total, left, used;
    } memory = {0};
    unsigned count = ROWS;
    size_t left = 0, total = 0;
    struct held found = {-1, -1, -1};
    if (handle == NULL)
        ML(nvmlDeviceGetHandleByIndex_v2, 0, &handle);
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
    printf("{\"fact\":\"memory\",\"after\":\"%s\",\"process_mib\":%.3f,\"gpu_mib\":%.3f,"
           "\"free_mib\":%.3f,\"process_more_mib\":%.3f,\"gpu_more_mib\":%.3f}\n",
           after, now.process / MIB, now.gpu / MIB, now.left / MIB,
           (now.process - before.process) / MIB, (now.gpu - before.gpu) / MIB);
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
        printf("{\"fact\":\"cuMemAlloc\",\"bytes\":%zu,\"each_process\":%.0f,\"each_free\":%.0f,"
               "\"alloc_us\":%.2f,\"free_us\":%.2f}\n",
               sizes[s], (after.process - before.process) / MANY, (before.left - after.left) / MANY,
               alloc_us, (now_us() - begun) / MANY);
    }
}

static void print_managed_and_pinned(void)
{
    static const size_t size = (size_t)256 << 20;
    u64 managed = 0;
    void *pinned = NULL;
    struct held before = held();
    if (CU(cuMemAllocManaged, &managed, size, 1) == 0) {
        before = print_held("256 MiB managed, untouched", before);
        CU(cuMemsetD8_v2, managed, 1, size);
        synchronize();
        before = print_held("256 MiB managed, touched by the GPU", before);
        CU(cuMemFree_v2, managed);
        before = print_held("managed freed", before);
    }
    if (CU(cuMemHostAlloc, &pinned, size, 0) == 0) {
        print_held("256 MiB pinned host memory", before);
        CU(cuMemFreeHost, pinned);
    }
}

static void print_pool(void)
{
    static const size_t sizes[] = {1, 1 << 20, 31 << 20, 33 << 20, 64 << 20, 100 << 20};
    enum { MANY = sizeof sizes / sizeof *sizes };
    void *pool = NULL, *stream = NULL;
    u64 got[MANY] = {0}, reserved = 0, last = 0;
    struct held before = held();
    CU(cuStreamCreate, &stream, NON_BLOCKING);
    if (CU(cuDeviceGetDefaultMemPool, &pool, device) != 0)
        return;
    for (int i = 0; i < MANY; i++) {
        int result = CU(cuMemAllocAsync, &got[i], sizes[i], stream);
        CU(cuMemPoolGetAttribute, pool, RESERVED, &reserved);
        printf("{\"fact\":\"pool\",\"bytes\":%zu,\"result\":%d,\"grew\":%lld}\n", sizes[i], result,
               (long long)(reserved - last));
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

/* What a pair of events says of nothing, or of a kernel. busy: behind so many rounds of work that
 * the host is far ahead. */
static void print_event_floor(const char *fact, void *function, u64 busy, void *stream)
{
    double values[REPEAT];
    void *before = NULL, *after = NULL, *parameters[] = {&busy};
    CU(cuEventCreate, &before, 0);
    CU(cuEventCreate, &after, 0);
    for (int i = 0; i < REPEAT; i++) {
        CU(cuStreamSynchronize, stream);
        if (busy > 0)
            run(spin, 1, 1, stream, parameters);
        CU(cuEventRecord, before, stream);
        if (function != NULL)
            run(function, 1, 1, stream, parameters);
        CU(cuEventRecord, after, stream);
        CU(cuStreamSynchronize, stream);
        values[i] = elapsed_us(before, after);
    }
    print_spread(fact, values, REPEAT, "us");
    CU(cuEventDestroy_v2, before);
    CU(cuEventDestroy_v2, after);
}

#define COST(fact, ...)                                                                            \
    do {                                                                                           \
        double values_[REPEAT];                                                                    \
        for (int i = 0; i < REPEAT; i++) {                                                         \
            double begun_ = now_us();                                                              \
            __VA_ARGS__;                                                                           \
            values_[i] = now_us() - begun_;                                                        \
        }                                                                                          \
        print_spread(fact, values_, REPEAT, "us");                                                 \
    } while (0)

static void print_event_floors(void *stream)
{
    static const u64 busy = 20000;
    for (int i = 0; i < 200; i++)
        run(empty, 1, 1, stream, NULL);
    synchronize();
    print_event_floor("event pair, nothing between, idle stream", NULL, 0, stream);
    print_event_floor("event pair, nothing between, busy stream", NULL, busy, stream);
    print_event_floor("event pair, empty kernel, idle stream", empty, 0, stream);
    print_event_floor("event pair, empty kernel, busy stream", empty, busy, stream);
}

static void print_call_costs(void *stream)
{
    void *event = NULL, *first = NULL, *current = NULL, *events[REPEAT];
    int status = 0, mode = 2, which = 0;
    u64 id = 0;
    CU(cuEventCreate, &event, 0);
    CU(cuEventCreate, &first, 0);
    COST("cuLaunchKernel, empty, idle stream", run(empty, 1, 1, stream, NULL);
         CU(cuStreamSynchronize, stream));
    COST("cuLaunchKernel, empty, queued", run(empty, 1, 1, stream, NULL));
    synchronize();
    COST("cuEventRecord, timing", CU(cuEventRecord, event, stream));
    synchronize();
    COST("cuEventQuery, done", CU(cuEventQuery, event));
    CU(cuEventRecord, first, stream);
    CU(cuEventRecord, event, stream);
    synchronize();
    COST("cuEventElapsedTime", elapsed_us(first, event));
    COST("cuEventCreate", CU(cuEventCreate, &events[i], 0));
    COST("cuEventDestroy", CU(cuEventDestroy_v2, events[i]));
    COST("cuStreamIsCapturing", CU(cuStreamIsCapturing, stream, &status));
    COST("cuThreadExchangeStreamCaptureMode", CU(cuThreadExchangeStreamCaptureMode, &mode));
    COST("cuCtxGetCurrent", CU(cuCtxGetCurrent, &current));
    COST("cuCtxGetId", CU(cuCtxGetId, context, &id));
    COST("cuCtxGetDevice", CU(cuCtxGetDevice, &which));
}

/* How many launches until the driver makes the host wait? */
static void print_queue_depth(void *stream)
{
    u64 rounds = 300000000;
    void *parameters[] = {&rounds};
    int queued = 0;
    run(spin, 1, 1, stream, parameters);
    for (double begun = now_us(); queued < 20000; queued++) {
        double before = now_us();
        run(empty, 1, 1, stream, NULL);
        if (now_us() - before > 5000 || now_us() - begun > 3e6)
            break;
    }
    print_value("launches queued before the host waits", queued, "");
    synchronize();
}

struct utilization {
    unsigned pid;
    u64 stamp;
    unsigned sm, memory, encoder, decoder;
};

static void print_nvml_costs(void)
{
    struct {
        unsigned pid, pad;
        u64 bytes;
        unsigned instance, part;
    } rows[ROWS];
    struct utilization used[ROWS];
    struct {
        u64 total, left, used;
    } memory;
    struct {
        unsigned gpu, memory;
    } rates;
    unsigned count, clock;
    COST("nvmlDeviceGetComputeRunningProcesses_v3", count = ROWS;
         ML(nvmlDeviceGetComputeRunningProcesses_v3, handle, &count, rows));
    COST("nvmlDeviceGetProcessUtilization", count = ROWS;
         ML(nvmlDeviceGetProcessUtilization, handle, used, &count, 0ULL));
    COST("nvmlDeviceGetUtilizationRates", ML(nvmlDeviceGetUtilizationRates, handle, &rates));
    COST("nvmlDeviceGetMemoryInfo", ML(nvmlDeviceGetMemoryInfo, handle, &memory));
    COST("nvmlDeviceGetClockInfo", ML(nvmlDeviceGetClockInfo, handle, 1, &clock));
}

/* Rounds of spin, by all of a GPU's SMs, that take so long. */
static u64 rounds_for(double microseconds)
{
    u64 rounds = 1000000;
    void *parameters[] = {&rounds}, *before = NULL, *after = NULL;
    CU(cuEventCreate, &before, 0);
    CU(cuEventCreate, &after, 0);
    for (int i = 0; i < 3; i++) {
        CU(cuEventRecord, before, NULL);
        run(spin, 132, 128, NULL, parameters);
        CU(cuEventRecord, after, NULL);
        synchronize();
    }
    double took = elapsed_us(before, after);
    return took > 0 ? (u64)((double)rounds * microseconds / took) + 1 : rounds;
}

static void print_slices(double seconds)
{
    enum { MOST = 20000 };
    static u64 got[2 * (MOST + 1)];
    u64 out = 0, length = (u64)(seconds * 1e9), least = 3000, most = MOST;
    void *parameters[] = {&out, &length, &least, &most};
    CU(cuMemAlloc_v2, &out, sizeof got);
    CU(cuMemsetD8_v2, out, 0, sizeof got);
    printf("{\"fact\":\"slices\",\"pid\":%d,\"host_us\":%.0f", getpid(), now_us());
    run(jumps, 1, 1, NULL, parameters);
    synchronize();
    CU(cuMemcpyDtoH_v2, got, out, sizeof got);
    u64 count = got[1] < MOST ? got[1] : MOST;
    printf(",\"begin\":%llu,\"away\":[", got[0]);
    for (u64 i = 1; i <= count; i++)
        printf("%s[%llu,%llu]", i > 1 ? "," : "", got[2 * i] - got[0], got[2 * i + 1] - got[0]);
    printf("]}\n");
}

static void run_load(double ms, double percent, double seconds)
{
    u64 rounds = rounds_for(ms * 1000);
    void *parameters[] = {&rounds};
    double begun = now_us();
    int done = 0;
    for (; now_us() - begun < seconds * 1e6; done++) {
        double before = now_us();
        run(spin, 132, 128, NULL, parameters);
        synchronize();
        if (percent < 100)
            usleep((unsigned)((now_us() - before) * (100 / percent - 1)));
    }
    printf("{\"fact\":\"load\",\"pid\":%d,\"ms\":%.3f,\"percent\":%.0f,\"kernels\":%d,"
           "\"seconds\":%.2f}\n",
           getpid(), ms, percent, done, (now_us() - begun) / 1e6);
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
        struct {
            unsigned gpu, memory;
        } rates = {0};
        unsigned count = ROWS;
        memset(rows, 0, sizeof rows);
        int result = ML(nvmlDeviceGetProcessUtilization, handle, rows, &count, since);
        ML(nvmlDeviceGetUtilizationRates, handle, &rates);
        printf("{\"fact\":\"utilisation\",\"at\":%llu,\"result\":%d,\"gpu\":%u,\"since\":%llu,"
               "\"rows\":[",
               wall, result, rates.gpu, since);
        const char *separator = "";
        for (unsigned i = 0; result == 0 && i < count && i < ROWS; i++) {
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

static void print_alone(struct held before)
{
    void *streams[8], *stream = NULL;
    before = print_held("module", before);
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
    CU(cuStreamCreate, &stream, NON_BLOCKING);
    print_event_floors(stream);
    print_call_costs(stream);
    print_queue_depth(stream);
    print_nvml_costs();
    print_value("last error seen", failed, "");
}

static int with_context(const char *what, char **words)
{
    struct held before = {0, 0, 0};
    int alone = strcmp(what, "alone") == 0, version = 0;
    if (start() != 0)
        return printf("{\"fact\":\"cuInit\",\"result\":%d}\n", failed), 1;
    CU(cuDriverGetVersion, &version);
    print_value("cuDriverGetVersion", version, "");
    if (alone)
        before = print_held("cuInit", held());
    double begun = now_us();
    CU(cuDevicePrimaryCtxRetain, &context, device);
    CU(cuCtxSetCurrent, context);
    print_value("context made in", (now_us() - begun) / 1000, "ms");
    if (alone)
        before = print_held("context", before);
    begun = now_us();
    if (load() != 0)
        return printf("{\"fact\":\"module\",\"result\":%d}\n", failed), 1;
    print_value("PTX compiled and loaded in", (now_us() - begun) / 1000, "ms");
    if (alone)
        print_alone(before);
    else if (strcmp(what, "slices") == 0)
        print_slices(atof(words[0]));
    else
        run_load(atof(words[0]), atof(words[1]), atof(words[2]));
    return 0;
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        int words;
    } modes[] = {{"alone", 0}, {"slices", 1}, {"load", 3}, {"watch", 1}};
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
    fputs("usage: gpu_facts alone | slices SECONDS | load MS PERCENT SECONDS | watch SECONDS\n",
          stderr);
    return 2;
}
