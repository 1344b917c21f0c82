/* What the attacks stand on: the driver by its own names, one kernel, the clock. For attacks.c. */
#ifndef ATTACK_DRIVER_H
#define ATTACK_DRIVER_H

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MILLISECOND UINT64_C(1000000)
#define SECOND (1000 * MILLISECOND)

enum { BLOCKS = 264, THREADS = 1024, CROWD = 64, FUNCTIONS = 1000, FORKED = 300, KEEP_MODE = 2 };

#define DRIVER_FUNCTIONS(FUNCTION)                                                                 \
    FUNCTION(cuInit, (unsigned))                                                                   \
    FUNCTION(cuDevicePrimaryCtxRetain, (void **, int))                                             \
    FUNCTION(cuDevicePrimaryCtxReset_v2, (int))                                                    \
    FUNCTION(cuCtxCreate_v2, (void **, unsigned, int))                                             \
    FUNCTION(cuCtxDestroy_v2, (void *))                                                            \
    FUNCTION(cuCtxSetCurrent, (void *))                                                            \
    FUNCTION(cuCtxSynchronize, (void))                                                             \
    FUNCTION(cuModuleLoadData, (void **, const void *))                                            \
    FUNCTION(cuModuleGetFunction, (void **, void *, const char *))                                 \
    FUNCTION(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,  \
                              unsigned, void *, void **, void **))                                 \
    FUNCTION(cuLaunchCooperativeKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, \
                                         unsigned, unsigned, void *, void **))                     \
    FUNCTION(cuStreamCreate, (void **, unsigned))                                                  \
    FUNCTION(cuStreamDestroy_v2, (void *))                                                         \
    FUNCTION(cuStreamBeginCapture_v2, (void *, int))                                               \
    FUNCTION(cuStreamEndCapture, (void *, void **))                                                \
    FUNCTION(cuGraphInstantiateWithFlags, (void **, void *, uint64_t))                             \
    FUNCTION(cuGraphGetNodes, (void *, void **, size_t *))                                         \
    FUNCTION(cuGraphExecKernelNodeSetParams_v2, (void *, void *, const void *))                    \
    FUNCTION(cuGraphLaunch, (void *, void *))

#define DECLARE(name, parameters) static int(*name) parameters;
DRIVER_FUNCTIONS(DECLARE)

static const char image[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                            ".visible .entry spin(.param .u64 ns) { ret; }\n"
                            ".visible .entry ncclDevKernel_Generic(.param .u64 ns,\n"
                            "    .param .u64 nothing, .param .u64 group, .param .u64 members)\n"
                            "{ ret; }";

static void *spin, *some_stream, *executable, *node;
static uint64_t ends, steps;

static void check(int result, const char *what)
{
    if (result == 0)
        return;
    fprintf(stderr, "attacks: %s: %d\n", what, result);
    exit(1);
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

static void rest(uint64_t ns)
{
    struct timespec time = {(time_t)(ns / SECOND), (long)(ns % SECOND)};
    nanosleep(&time, NULL);
}

static void find_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
#define FIND(name, parameters)                                                                     \
    if (library == NULL || (name = (int(*) parameters)dlsym(library, #name)) == NULL)              \
        check(-1, #name);
    DRIVER_FUNCTIONS(FIND)
}

static void *function_of_name(const char *name)
{
    void *module, *function;
    check(cuModuleLoadData(&module, image), "loading the kernel");
    check(cuModuleGetFunction(&function, module, name), "finding the kernel");
    return function;
}

static void *new_function(void)
{
    return function_of_name("spin");
}

static void begin_on(int device)
{
    void *context;
    find_driver();
    check(cuInit(0), "cuInit");
    check(cuDevicePrimaryCtxRetain(&context, device), "making a context");
    check(cuCtxSetCurrent(context), "using the context");
    spin = new_function();
}

static void begin(void)
{
    begin_on(0);
}

static int launch(void *function, unsigned blocks, uint64_t ns, void *stream)
{
    void *parameters[] = {&ns};
    return cuLaunchKernel(function, blocks, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL);
}

#endif
