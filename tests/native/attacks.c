/* Programs that try to get more of the GPU than their share: `attacks NAME SECONDS`.
 *
 * Each is one step, made again and again until the time is over. Kernels fill the GPU, so that no
 * two run at once, and take a millisecond where nothing else is said. The driver may refuse what a
 * step asks for: what counts is the GPU time that comes of it.
 */
#include "attack_driver.h"

static int launch_one(void)
{
    return launch(spin, BLOCKS, MILLISECOND, NULL);
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

/* A context of its own that goes while work is in flight: what was watched in it cannot be asked.
 */
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

/* Short until it is known as short, then long. */
static void turning(void)
{
    launch(spin, BLOCKS, steps % 40 < 30 ? MILLISECOND / 10 : 10 * MILLISECOND, NULL);
}

/* Each context has one kernel that nobody has seen before. */
static void one_each(void)
{
    void *context;
    check(cuCtxCreate_v2(&context, 0, 0), "a context");
    launch(new_function(), BLOCKS, 50 * MILLISECOND, NULL);
    rest(10 * MILLISECOND);
    check(cuCtxDestroy_v2(context), "destroying a context");
}

static void runner(void)
{
    begin();
    launch(spin, BLOCKS, 100 * MILLISECOND, NULL);
    rest(100 * MILLISECOND);
    _exit(0);
}

/* Processes that launch one long kernel, and are gone when it is done. */
static void runners(void)
{
    for (int i = 0; i < 4; i++)
        if (fork() == 0)
            runner();
    while (wait(NULL) > 0)
        ;
}

/* Two processes with graphs that change. */
static void graph_pair(void)
{
    pid_t child = fork();
    begin();
    while (now() < ends) {
        graphs();
        steps++;
    }
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
}

static void *foreign_function(void)
{
    void *ours, *other, *function;
    check(cuDevicePrimaryCtxRetain(&ours, 0), "ours");
    check(cuCtxCreate_v2(&other, 0, 0), "a context");
    check(cuStreamCreate(&some_stream, 1), "a stream");
    function = new_function();
    check(cuCtxSetCurrent(ours), "using the context");
    return function;
}

/* Of another context than the current one. */
static void foreign(void)
{
    static void *function;
    if (steps == 0)
        function = foreign_function();
    check(launch(function, BLOCKS, 20 * MILLISECOND, some_stream), "launch");
}

/* In turn with another context. */
static void in_turn(void)
{
    static void *both[2], *functions_of[2];
    if (steps == 0) {
        for (int i = 0; i < 2; i++) {
            check(cuCtxCreate_v2(&both[i], 0, 0), "a context");
            functions_of[i] = new_function();
        }
    }
    check(cuCtxSetCurrent(both[steps % 2]), "using the context");
    check(launch(functions_of[steps % 2], BLOCKS + (unsigned)(steps * 37 % 4001), 3 * MILLISECOND,
                 NULL),
          "launch");
}

/* Work under the name of a collective, which waits for nobody. */
static void launch_named(uint64_t ns)
{
    static void *function;
    uint64_t nothing = 0, group = (uint64_t)getpid() << 32 | steps, members = 1;
    void *parameters[] = {&ns, &nothing, &group, &members};
    if (function == NULL)
        function = function_of_name("ncclDevKernel_Generic");
    check(cuLaunchKernel(function, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, parameters, NULL),
          "launch");
}

static void named(void)
{
    launch_named(5 * MILLISECOND);
}

/* One process is always some collectives ahead, so that the one on the other GPU is behind. */
static void behind(void)
{
    pid_t child = fork();
    begin_on(child == 0 ? 0 : 1);
    for (; now() < ends; steps++) {
        if (child == 0 ? steps < 500 || steps % 20 == 0 : steps % 100 == 0)
            launch_named(1000);
        if (child == 0)
            rest(10 * MILLISECOND);
        else
            launch(spin, BLOCKS, 3 * MILLISECOND, NULL);
    }
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
}

/* The container's meters, by the mapping that the shim has of them. */
static volatile uint64_t *own_meter(void)
{
    char line[512];
    unsigned long begin;
    FILE *maps = fopen("/proc/self/maps", "re");
    check(maps == NULL, "reading the mappings");
    while (fgets(line, sizeof line, maps) != NULL)
        if (strstr(line, "books") != NULL && strstr(line, "rw-s") != NULL &&
            sscanf(line, "%lx", &begin) == 1) {
            fclose(maps);
            return (volatile uint64_t *)(begin + 128);
        }
    exit(3);
}

/* Says before each launch that all is paid (virtual_time, the first word of a meter). */
static void all_paid(void)
{
    static volatile uint64_t *meter;
    if (meter == NULL)
        meter = own_meter();
    meter[0] = 0;
    launch_one();
}

/* As all_paid, and that nothing was ever charged, nor has ended. */
static void nothing_charged(void)
{
    static volatile uint64_t *meter;
    if (meter == NULL)
        meter = own_meter();
    meter[0] = meter[1] = meter[8] = 0;
    launch_one();
}

static const struct attack {
    const char *name;
    void (*step)(void);
    int forks; /* and does without the driver itself */
} attacks[] = {
#define ATTACK(name, forks) {#name, name, forks}
    ATTACK(threads, 0),         ATTACK(crowd, 0),   ATTACK(shapes, 0),      ATTACK(functions, 0),
    ATTACK(failures, 0),        ATTACK(streams, 0), ATTACK(contexts, 0),    ATTACK(resets, 0),
    ATTACK(capture, 0),         ATTACK(signals, 0), ATTACK(cooperative, 0), ATTACK(graphs, 0),
    ATTACK(saved, 0),           ATTACK(turning, 0), ATTACK(forks, 1),       ATTACK(storm, 1),
    ATTACK(one_each, 0),        ATTACK(runners, 1), ATTACK(graph_pair, 1),  ATTACK(foreign, 0),
    ATTACK(in_turn, 0),         ATTACK(named, 0),   ATTACK(behind, 1),      ATTACK(all_paid, 0),
    ATTACK(nothing_charged, 0),
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
    uint64_t begun = now();
    ends = begun + (uint64_t)atoi(words[2]) * SECOND;
    for (; now() < ends; steps++)
        attack->step();
    printf("{\"launches\": %llu, \"seconds\": %g}\n", (unsigned long long)steps,
           (double)(now() - begun) / 1e9);
    return 0;
}
