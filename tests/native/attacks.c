/* Programs that try to get more of the GPU than their share: `attacks NAME SECONDS`.
 *
 * Each is one step, made again and again until the time is over. Kernels fill the GPU, so that no
 * two run at once, and take a millisecond where nothing else is said. The driver may refuse what a
 * step asks for: what counts is the GPU time that comes of it.
 */
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
    FUNCTION(cuMemAlloc_v2, (uint64_t *, size_t))                                                  \
    FUNCTION(cuMemsetD8Async, (uint64_t, unsigned char, size_t, void *))                           \
    FUNCTION(cuMemcpyDtoDAsync_v2, (uint64_t, uint64_t, size_t, void *))                           \
    FUNCTION(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,  \
                              unsigned, void *, void **, void **))                                 \
    FUNCTION(cuLaunchCooperativeKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, \
                                         unsigned, unsigned, void *, void **))                     \
    FUNCTION(cuStreamCreate, (void **, unsigned))                                                  \
    FUNCTION(cuStreamDestroy_v2, (void *))                                                         \
    FUNCTION(cuStreamBeginCapture_v2, (void *, int))                                               \
    FUNCTION(cuStreamEndCapture, (void *, void **))                                                \
    FUNCTION(cuGraphInstantiateWithFlags, (void **, void *, uint64_t))                             \
    FUNCTION(cuGraphExecDestroy, (void *))                                                         \
    FUNCTION(cuGraphGetNodes, (void *, void **, size_t *))                                         \
    FUNCTION(cuGraphExecKernelNodeSetParams_v2, (void *, void *, const void *))                    \
    FUNCTION(cuGraphLaunch, (void *, void *))

#define DECLARE(name, parameters) static int(*name) parameters;
DRIVER_FUNCTIONS(DECLARE)

static const char image[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                            ".visible .entry spin(.param .u64 ns) { ret; }";

static void *spin, *some_stream, *executable, *node;
static uint64_t memory, begun, ends, steps;

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

static void *new_function(void)
{
    void *module, *function;
    check(cuModuleLoadData(&module, image), "loading the kernel");
    check(cuModuleGetFunction(&function, module, "spin"), "finding the kernel");
    return function;
}

static void begin(void)
{
    void *context;
    find_driver();
    check(cuInit(0), "cuInit");
    check(cuDevicePrimaryCtxRetain(&context, 0), "making a context");
    check(cuCtxSetCurrent(context), "using the context");
    spin = new_function();
}

static int launch(void *function, unsigned blocks, uint64_t ns, void *stream)
{
    void *parameters[] = {&ns};
    return cuLaunchKernel(function, blocks, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL);
}

static int launch_one(void)
{
    return launch(spin, BLOCKS, MILLISECOND, NULL);
}

/* What an honest program does, for comparison. */
static void plain(void)
{
    launch_one();
}

static void long_ones(void)
{
    launch(spin, BLOCKS, 100 * MILLISECOND, NULL);
}

/* Threads that come and go: each begins with an allowance of its own. */
static void *live_briefly(void *context)
{
    cuCtxSetCurrent(context);
    launch_one();
    return NULL;
}

static void threads(void)
{
    void *context;
    pthread_t crowd[CROWD];
    cuDevicePrimaryCtxRetain(&context, 0);
    for (int i = 0; i < CROWD; i++)
        check(pthread_create(&crowd[i], NULL, live_briefly, context), "a thread");
    for (int i = 0; i < CROWD; i++)
        pthread_join(crowd[i], NULL);
}

/* Threads that stay: each has an allowance in hand. */
static void *live_long(void *context)
{
    void *stream;
    cuCtxSetCurrent(context);
    check(cuStreamCreate(&stream, 1), "a stream");
    while (now() < ends)
        launch(spin, BLOCKS, MILLISECOND / 10, stream);
    return NULL;
}

static void crowd(void)
{
    void *context;
    pthread_t all[CROWD];
    cuDevicePrimaryCtxRetain(&context, 0);
    for (int i = 0; i < CROWD; i++)
        check(pthread_create(&all[i], NULL, live_long, context), "a thread");
    for (int i = 0; i < CROWD; i++)
        pthread_join(all[i], NULL);
}

/* A grid that was never seen, and so is of no known cost. */
static void shapes(void)
{
    launch(spin, (unsigned)(BLOCKS + steps * steps * 1009 % 2000000000), MILLISECOND, NULL);
}

static void functions(void)
{
    static void *each[FUNCTIONS];
    void **function = &each[steps % FUNCTIONS];
    if (*function == NULL)
        *function = new_function();
    launch(*function, BLOCKS, MILLISECOND, NULL);
}

/* Of two launches one fails. */
static void failures(void)
{
    launch(spin, 0, MILLISECOND, NULL);
    launch_one();
}

static void streams(void)
{
    void *stream;
    check(cuStreamCreate(&stream, 1), "a stream");
    launch(spin, BLOCKS, MILLISECOND, stream);
    check(cuStreamDestroy_v2(stream), "destroying a stream");
}

/* A context of its own that goes while work is in flight: what was watched in it cannot be asked. */
static void contexts(void)
{
    void *context;
    check(cuCtxCreate_v2(&context, 0, 0), "a context");
    void *function = new_function();
    for (int i = 0; i < 5; i++)
        launch(function, BLOCKS, 4 * MILLISECOND, NULL);
    check(cuCtxDestroy_v2(context), "destroying a context");
}

static void resets(void)
{
    for (int i = 0; i < 5; i++)
        launch(spin, BLOCKS, 4 * MILLISECOND, NULL);
    check(cuDevicePrimaryCtxReset_v2(0), "resetting");
    begin();
}

/* A capture in another stream that never ends. */
static void capture(void)
{
    if (steps == 0) {
        check(cuStreamCreate(&some_stream, 1), "a stream");
        check(cuStreamBeginCapture_v2(some_stream, KEEP_MODE), "a capture");
    }
    launch_one();
}

static void by_signal(int number)
{
    (void)number;
    launch_one();
}

static void signals(void)
{
    if (steps == 0)
        signal(SIGUSR1, by_signal);
    launch_one();
    raise(SIGUSR1);
}

static void cooperative(void)
{
    uint64_t ns = MILLISECOND;
    void *parameters[] = {&ns};
    check(cuLaunchCooperativeKernel(spin, 132, 1, 1, THREADS, 1, 1, 0, NULL, parameters), "launch");
}

struct kernel_node {
    void *function;
    unsigned shape[7];
    void **parameters, **extra;
    void *kernel, *context;
};

static void set_length(uint64_t ns)
{
    void *parameters[] = {&ns};
    struct kernel_node changed = {spin, {BLOCKS, 1, 1, THREADS, 1, 1, 0}, parameters, NULL, 0, 0};
    check(cuGraphExecKernelNodeSetParams_v2(executable, node, &changed), "changing the graph");
}

static void make_graph(void)
{
    void *graph;
    size_t count = 1;
    check(cuStreamCreate(&some_stream, 1), "a stream");
    check(cuStreamBeginCapture_v2(some_stream, KEEP_MODE), "a capture");
    launch(spin, BLOCKS, MILLISECOND, some_stream);
    check(cuStreamEndCapture(some_stream, &graph), "the capture's end");
    check(cuGraphGetNodes(graph, &node, &count), "its nodes");
    check(cuGraphInstantiateWithFlags(&executable, graph, 0), "a graph");
}

/* A graph that is another one at each launch. */
static void graphs(void)
{
    if (executable == NULL)
        make_graph();
    set_length(MILLISECOND * (1 + steps % 7));
    check(cuGraphLaunch(executable, some_stream), "launching the graph");
}

static void fills(void)
{
    if (memory == 0)
        check(cuMemAlloc_v2(&memory, 256 << 20), "memory");
    check(cuMemsetD8Async(memory, 0, (128 << 20) + steps % 1000 * 4096, NULL), "a fill");
}

static void copies(void)
{
    if (memory == 0)
        check(cuMemAlloc_v2(&memory, 256 << 20), "memory");
    check(cuMemcpyDtoDAsync_v2(memory, memory + (128 << 20), 128 << 20, NULL), "a copy");
}

/* Idle for five seconds, and then all that was saved up. */
static void saved(void)
{
    if (steps == 0)
        rest(5 * SECOND);
    launch_one();
}

static void one_forked(void)
{
    begin();
    for (int i = 0; i < 20; i++)
        launch_one();
    _exit(0);
}

/* Processes that begin, launch and are gone, all knowing nothing. */
static void forks(void)
{
    pid_t child = fork();
    if (child == 0)
        one_forked();
    waitpid(child, NULL, 0);
}

/* Many of them at a time. */
static void storm(void)
{
    for (int i = 0; i < 10; i++)
        if (fork() == 0)
            one_forked();
    while (wait(NULL) > 0)
        ;
}

/* Stopped and continued at any place. */
static void stops(void)
{
    pid_t child = fork();
    if (child == 0) {
        begin();
        while (now() < ends)
            launch_one();
        _exit(0);
    }
    while (now() < ends) {
        rest(37 * MILLISECOND);
        kill(child, SIGSTOP);
        rest(61 * MILLISECOND);
        kill(child, SIGCONT);
    }
    waitpid(child, NULL, 0);
}

/* Short until it is known as short, then long. */
static void turning(void)
{
    launch(spin, BLOCKS, steps % 40 < 30 ? MILLISECOND / 10 : 10 * MILLISECOND, NULL);
}

static const struct attack {
    const char *name;
    void (*step)(void);
    int forks; /* and does without the driver itself */
} attacks[] = {
#define ATTACK(name, forks) {#name, name, forks}
    ATTACK(plain, 0),     ATTACK(long_ones, 0), ATTACK(threads, 0),     ATTACK(crowd, 0),
    ATTACK(shapes, 0),    ATTACK(functions, 0), ATTACK(failures, 0),    ATTACK(streams, 0),
    ATTACK(contexts, 0),  ATTACK(resets, 0),    ATTACK(capture, 0),     ATTACK(signals, 0),
    ATTACK(cooperative, 0), ATTACK(graphs, 0),  ATTACK(fills, 0),       ATTACK(copies, 0),
    ATTACK(saved, 0),     ATTACK(turning, 0),   ATTACK(forks, 1),       ATTACK(storm, 1),
    ATTACK(stops, 1),
};

static const struct attack *find(const char *name)
{
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++)
        if (strcmp(attacks[i].name, name) == 0)
            return &attacks[i];
    exit(2);
}

int main(int count, char **words)
{
    const struct attack *attack = find(count == 3 ? words[1] : "");
    if (!attack->forks)
        begin();
    begun = now();
    ends = begun + (uint64_t)atoi(words[2]) * SECOND;
    for (; now() < ends; steps++)
        attack->step();
    printf("{\"launches\": %llu, \"seconds\": %g}\n", (unsigned long long)steps,
           (double)(now() - begun) / 1e9);
    return 0;
}
