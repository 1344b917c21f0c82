/* Kernels that wait: for one another on two GPUs, for their own host, for another container's.
 *
 * usage: waits threads|flag|ping|pong KERNEL_NS ROUNDS [FILE]
 *
 * threads: one thread for each of two GPUs, each with its kernel and then its part of an all-reduce
 * of both. flag: a kernel that waits until its host has launched another one, and says so. ping and
 * pong: two programs; the kernel of each waits until the other one's has ended, whose host says so
 * in FILE. Tells in JSON in how many seconds the rounds were done.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 264, THREADS = 1024, EXCHANGE_NS = 100000, HOST_MAPPED = 3, AT_LEAST = 0 };

static uint64_t length, until;
static volatile uint32_t *flags;
static uint64_t rounds[2];

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static int (*lookup)(const char *, void **, int, uint64_t, int *);

/* The driver's function of that name; its failure ends the program. */
#define CUDA(name, ...)                                                                            \
    do {                                                                                           \
        void *function = NULL;                                                                     \
        lookup(#name, &function, 12000, 0, NULL);                                                  \
        int code = function == NULL ? -1 : ((int (*)())function)(__VA_ARGS__);                     \
        if (code != 0) {                                                                           \
            fprintf(stderr, "waits: %s: %d\n", #name, code);                                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static const char image[] = ".version 6.0\n.target sm_60\n.address_size 64\n"
                            ".visible .entry spin(.param .u64 length)\n{\n    ret;\n}\n"
                            ".visible .entry ncclDevKernel_Waits(.param .u64 length,\n"
                            "    .param .u64 counter, .param .u64 group, .param .u64 members)\n"
                            "{\n    ret;\n}\n";

struct rank {
    void *context, *spin, *reduce, *streams[2], *ends[2];
};

static void prepare(struct rank *rank, int ordinal)
{
    int device;
    void *module;
    CUDA(cuDeviceGet, &device, ordinal);
    CUDA(cuDevicePrimaryCtxRetain, &rank->context, device);
    CUDA(cuCtxSetCurrent, rank->context);
    CUDA(cuModuleLoadData, &module, image);
    CUDA(cuModuleGetFunction, &rank->spin, module, "spin");
    CUDA(cuModuleGetFunction, &rank->reduce, module, "ncclDevKernel_Waits");
    for (int at = 0; at < 2; at++) {
        CUDA(cuStreamCreate, &rank->streams[at], 1);
        CUDA(cuEventCreate, &rank->ends[at], 2);
    }
}

static void launch(void *kernel, void *stream, void **parameters)
{
    CUDA(cuLaunchKernel, kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL);
}

static void compute(const struct rank *rank, int stream)
{
    void *parameters[] = {&length};
    launch(rank->spin, rank->streams[stream], parameters);
}

static void *drive(void *number)
{
    struct rank rank;
    uint64_t at = (uintptr_t)number, exchange = EXCHANGE_NS, counter = 0, members = 2, round = 0;
    prepare(&rank, (int)at);
    for (; round < rounds[0]; round++) {
        uint64_t group = UINT64_C(7) << 32 | round;
        void *parameters[] = {&exchange, &counter, &group, &members};
        compute(&rank, 0);
        launch(rank.reduce, rank.streams[0], parameters);
        CUDA(cuEventRecord, rank.ends[round % 2], rank.streams[0]);
        if (round > 0)
            CUDA(cuEventSynchronize, rank.ends[(round + 1) % 2]);
    }
    CUDA(cuStreamSynchronize, rank.streams[0]);
    return NULL;
}

static uint64_t run_threads(void)
{
    pthread_t threads[2];
    rounds[0] = until;
    for (uintptr_t at = 0; at < 2; at++)
        pthread_create(&threads[at], NULL, drive, (void *)at);
    for (int at = 0; at < 2; at++)
        pthread_join(threads[at], NULL);
    return rounds[0];
}

static void compute_behind(const struct rank *rank, int flag, uint32_t value)
{
    uint64_t address;
    CUDA(cuMemHostGetDevicePointer, &address, (void *)&flags[flag], 0);
    CUDA(cuStreamWaitValue32, rank->streams[0], address, value, AT_LEAST);
    compute(rank, 0);
}

static uint64_t run_flag(void)
{
    struct rank rank;
    uint32_t round = 0;
    prepare(&rank, 0);
    CUDA(cuMemHostRegister, (void *)flags, 4096, HOST_MAPPED);
    for (; round < until; round++) {
        compute_behind(&rank, 0, round + 1);
        compute(&rank, 1);
        flags[0] = round + 1;
        CUDA(cuStreamSynchronize, rank.streams[0]);
        CUDA(cuStreamSynchronize, rank.streams[1]);
    }
    return round;
}

static uint64_t run_exchange(int pong)
{
    struct rank rank;
    uint32_t round = 0;
    prepare(&rank, 0);
    CUDA(cuMemHostRegister, (void *)flags, 4096, HOST_MAPPED);
    for (; round < until; round++) {
        compute_behind(&rank, pong, pong ? round + 1 : round);
        CUDA(cuStreamSynchronize, rank.streams[0]);
        flags[!pong] = round + 1;
    }
    return round;
}

int main(int count, char **words)
{
    (void)count;
    int file = words[4] == NULL ? -1 : open(words[4], O_RDWR | O_CREAT, 0666);
    int shared = file < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    if (file >= 0 && ftruncate(file, 4096) != 0)
        return 1;
    flags = mmap(NULL, 4096, PROT_READ | PROT_WRITE, shared, file, 0);
    length = strtoull(words[2], NULL, 10);
    until = strtoull(words[3], NULL, 10);
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&lookup = library == NULL ? NULL : dlsym(library, "cuGetProcAddress_v2");
    if (lookup == NULL || flags == MAP_FAILED)
        return 1;
    CUDA(cuInit, 0);
    struct timespec moment = {.tv_sec = 2}; /* until all of the harness's programs are there */
    clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, NULL);
    uint64_t begun = now();
    uint64_t done = strcmp(words[1], "threads") == 0 ? run_threads()
                    : strcmp(words[1], "flag") == 0  ? run_flag()
                                                     : run_exchange(words[1][1] == 'o');
    printf("{\"rounds\": %llu, \"seconds\": %g}\n", (unsigned long long)done,
           (double)(now() - begun) / 1e9);
    return 0;
}
