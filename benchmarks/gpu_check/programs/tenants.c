/* Two tenants of a GPU as users have them: a service that answers requests, and training.
 *
 *     tenants calibrate MICROSECONDS
 *     tenants serve START_NS SECONDS KERNELS ROUNDS RATE HOST_US
 *     tenants train START_NS SECONDS KERNELS ROUNDS
 *
 * A kernel is so many rounds of work on every multiprocessor: time away from the GPU is no
 * progress. serve: requests at random times (Poisson, RATE a second, one after another), each of
 * KERNELS kernels that are waited for together; HOST_US >= 0: each waited for alone, with so much
 * work of the host behind it. A request's time runs from when it came. train: steps of KERNELS
 * kernels without an end, two steps ahead of the host. Both begin at START_NS of CLOCK_MONOTONIC,
 * print a line of JSON, and leave the first second out of it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned long long u64;
typedef int (*call)();

enum {
    MULTIPROCESSORS = 16, /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT */
    THREADS = 128,
    NON_BLOCKING = 1,
    WAITS = 1 | 2, /* CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING */
    MOST = 200000,
};
static const u64 SECOND = 1000000000;

static const char PTX[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                          ".visible .entry spin(.param .u64 rounds)\n{\n"
                          " .reg .u64 %rd<4>;\n .reg .f32 %f<3>;\n .reg .pred %p<3>;\n"
                          " ld.param.u64 %rd1, [rounds];\n mov.u64 %rd2, 0;\n"
                          " mov.f32 %f1, 0f3F800001;\n"
                          "again:\n fma.rn.f32 %f1, %f1, %f1, %f1;\n add.u64 %rd2, %rd2, 1;\n"
                          " setp.lt.u64 %p1, %rd2, %rd1;\n @%p1 bra again;\n"
                          " setp.eq.f32 %p2, %f1, 0f00000000;\n @%p2 trap;\n ret;\n}\n";

static void *cuda, *context, *module, *spin, *stream;
static int device, blocks;

#define CU(name, ...)                                                                              \
    do {                                                                                           \
        static call function_;                                                                     \
        if (function_ == NULL)                                                                     \
            function_ = (call)dlsym(cuda, #name);                                                  \
        int result_ = function_ != NULL ? function_(__VA_ARGS__) : -1;                             \
        if (result_ != 0) {                                                                        \
            fprintf(stderr, "tenants: %s answers %d\n", #name, result_);                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static u64 now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (u64)time.tv_sec * SECOND + (u64)time.tv_nsec;
}

static void sleep_until(u64 moment)
{
    struct timespec time = {(time_t)(moment / SECOND), (long)(moment % SECOND)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
        ;
}

static void launch(u64 rounds)
{
    void *parameters[] = {&rounds};
    CU(cuLaunchKernel, spin, blocks, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL);
}

static void *new_event(unsigned flags)
{
    void *event = NULL;
    CU(cuEventCreate, &event, flags);
    return event;
}

static void start(void)
{
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    CU(cuInit, 0);
    CU(cuDeviceGet, &device, 0);
    CU(cuDeviceGetAttribute, &blocks, MULTIPROCESSORS, device);
    CU(cuDevicePrimaryCtxRetain, &context, device);
    CU(cuCtxSetCurrent, context);
    CU(cuModuleLoadData, &module, PTX);
    CU(cuModuleGetFunction, &spin, module, "spin");
    CU(cuStreamCreate, &stream, NON_BLOCKING);
}

static void calibrate(double microseconds)
{
    u64 rounds = 1000000;
    void *before = new_event(0), *after = new_event(0);
    float ms = 1;
    for (u64 begun = now_ns(); now_ns() - begun < SECOND / 2;) {
        CU(cuEventRecord, before, stream);
        for (int i = 0; i < 10; i++)
            launch(rounds);
        CU(cuEventRecord, after, stream);
        CU(cuStreamSynchronize, stream);
        CU(cuEventElapsedTime, &ms, before, after);
    }
    printf("{\"rounds\":%.0f}\n", (double)rounds * microseconds / (ms * 100));
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void serve(u64 begin, double seconds, int kernels, u64 rounds, double rate, double host_us)
{
    static double took[MOST];
    double at = 0;
    int count = 0;
    srand48(7);
    while (count < MOST) {
        at -= log(1 - drand48()) / rate;
        if (at > seconds)
            break;
        u64 came = begin + (u64)(at * 1e9);
        if (now_ns() < came)
            sleep_until(came);
        for (int i = 0; i < kernels; i++) {
            launch(rounds);
            if (host_us < 0)
                continue;
            CU(cuStreamSynchronize, stream);
            for (u64 until = now_ns() + (u64)(host_us * 1e3); now_ns() < until;)
                ;
        }
        CU(cuStreamSynchronize, stream);
        if (at > 1)
            took[count++] = (double)(now_ns() - came) / 1e6;
    }
    qsort(took, (size_t)count, sizeof *took, by_value);
    printf("{\"requests\":%d", count);
    if (count > 0)
        printf(",\"p50_ms\":%.3f,\"p90_ms\":%.3f,\"p99_ms\":%.3f,\"most_ms\":%.3f", took[count / 2],
               took[count * 9 / 10], took[count * 99 / 100], took[count - 1]);
    printf("}\n");
}

static void train(u64 begin, double seconds, int kernels, u64 rounds)
{
    void *ends[2] = {new_event(WAITS), new_event(WAITS)};
    u64 from = begin + SECOND, until = begin + (u64)(seconds * 1e9), first = 0, last = 0;
    long done = 0;
    for (long steps = 0; last < until; steps++) {
        for (int i = 0; i < kernels; i++)
            launch(rounds);
        CU(cuEventRecord, ends[steps % 2], stream);
        if (steps == 0)
            continue;
        CU(cuEventSynchronize, ends[(steps + 1) % 2]);
        last = now_ns();
        if (first != 0)
            done += kernels;
        else if (last >= from)
            first = last;
    }
    printf("{\"kernels\":%ld,\"seconds\":%.6f}\n", done, (double)(last - first) / 1e9);
}

int main(int count, char **words)
{
    bool serving = count == 8 && strcmp(words[1], "serve") == 0;
    bool training = count == 6 && strcmp(words[1], "train") == 0;
    bool calibrating = count == 3 && strcmp(words[1], "calibrate") == 0;
    if (!serving && !training && !calibrating) {
        fputs("usage: tenants calibrate MICROSECONDS |\n"
              "       serve START_NS SECONDS KERNELS ROUNDS RATE HOST_US |\n"
              "       train START_NS SECONDS KERNELS ROUNDS\n",
              stderr);
        return 2;
    }
    start();
    if (calibrating)
        return calibrate(atof(words[2])), 0;
    u64 begin = strtoull(words[2], NULL, 10), rounds = strtoull(words[5], NULL, 10);
    double seconds = atof(words[3]);
    sleep_until(begin);
    if (serving)
        serve(begin, seconds, atoi(words[4]), rounds, atof(words[6]), atof(words[7]));
    else
        train(begin, seconds, atoi(words[4]), rounds);
    return 0;
}
