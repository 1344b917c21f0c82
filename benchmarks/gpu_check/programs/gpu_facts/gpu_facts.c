/* Facts about a real driver and GPU, one JSON line each: what the simulated ones are to do alike.
 *
 *     gpu_facts times                    events, calls, markers, the queue, NVML's latency
 *     gpu_facts captures                 what a query in another thread does to a capture
 *     gpu_facts memory                   what contexts, allocations, pools and stacks take
 *     gpu_facts slices SECONDS           when this process had the GPU, seen from inside a kernel
 *     gpu_facts ping SECONDS             launches of an empty kernel now and then, to their end
 *     gpu_facts copies SECONDS           copies of 16 MiB to the GPU now and then, to their end
 *     gpu_facts load MS PERCENT SECONDS  kernels of so many ms, so much of the time
 *     gpu_facts watch SECONDS            raw rows of nvmlDeviceGetProcessUtilization, 20 looks/s
 *
 * No header of CUDA, and no more than 2 GiB of the GPU. Each fact stands for itself: a call that
 * the driver lacks or refuses ends no other fact, and shows as "result" in its own.
 */
#include "facts.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    MAJOR = 75, /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR */
    MINOR = 76,
    NEWEST = 80, /* what PTX 7.0 can name; a driver compiles it for every later GPU */
    WARM_UP_US = 300000,
};

void *cuda, *ml, *context, *empty, *spin, *jumps, *handle;
int device, failed;
static void *module;

call find(void *library, const char *name)
{
    return library != NULL ? (call)dlsym(library, name) : NULL;
}

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

double now_us(void)
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

void end_fact(void)
{
    if (failed != 0)
        printf(",\"result\":%d", failed);
    printf("}\n");
    failed = 0;
}

void print_spread(const char *fact, double *values, int count, const char *unit)
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

void print_value(const char *fact, double value, const char *unit)
{
    printf("{\"fact\":\"%s\",\"unit\":\"%s\",\"value\":%.4f", fact, unit, value);
    end_fact();
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

int run(void *function, int blocks, int threads, void *stream, void **parameters)
{
    return CU(cuLaunchKernel, function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, NULL);
}

void run_spin(void *stream, u64 rounds)
{
    void *parameters[] = {&rounds};
    run(spin, 1, 1, stream, parameters);
}

void synchronize(void)
{
    CU(cuCtxSynchronize);
}

void *new_event(unsigned flags)
{
    void *event = NULL;
    CU(cuEventCreate, &event, flags);
    return event;
}

/* NVML numbers GPUs by bus id, as CUDA does here; of those it knows no choice. */
static void find_handle(void)
{
    const char *chosen = getenv("CUDA_VISIBLE_DEVICES");
    if (chosen != NULL && strncmp(chosen, "GPU-", 4) == 0)
        ML(nvmlDeviceGetHandleByUUID, chosen, &handle);
    else
        ML(nvmlDeviceGetHandleByIndex_v2, chosen != NULL ? atoi(chosen) : 0, &handle);
}

struct held held(void)
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

float elapsed_us(void *from, void *to)
{
    float ms = -1;
    CU(cuEventElapsedTime, &ms, from, to);
    return ms * 1000;
}

u64 rounds_for(double microseconds, int blocks, int threads)
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
    else if (strcmp(what, "captures") == 0)
        print_captures();
    else if (strcmp(what, "times") == 0)
        print_times();
    else if (strcmp(what, "slices") == 0)
        print_slices(atof(words[0]));
    else if (strcmp(what, "ping") == 0)
        run_ping(atof(words[0]));
    else if (strcmp(what, "copies") == 0)
        run_copies(atof(words[0]));
    else
        run_load(atof(words[0]), atof(words[1]), atof(words[2]));
    return 0;
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        int words;
    } modes[] = {{"times", 0}, {"captures", 0}, {"memory", 0}, {"slices", 1},
                 {"ping", 1},  {"copies", 1},   {"load", 3},   {"watch", 1}};
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
    fputs("usage: gpu_facts times | captures | memory | slices SECONDS | ping SECONDS |\n"
          "       copies SECONDS | load MS PERCENT SECONDS | watch SECONDS\n",
          stderr);
    return 2;
}
