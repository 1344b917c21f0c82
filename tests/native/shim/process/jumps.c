/* A thread that leaves calls that wait by a jump out of a signal handler, as Julia's interrupts do.
 *
 *     jumps KIND   waits by KIND (launch, stream, event, context), is signalled and jumps, again
 * and again; then prints what the limits are still worth, as JSON
 *
 * Another thread signals it each time it has not come back from a call for a while.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 6, LOOK_NS = 1000 * 1000, STUCK_LOOKS = 60, MIB = 1 << 20, PIECE = 64 * MIB };

#define FUNCTIONS(apply)                                                                           \
    apply(cuInit) apply(cuDevicePrimaryCtxRetain) apply(cuCtxSetCurrent) apply(cuModuleLoadData)   \
        apply(cuModuleGetFunction) apply(cuStreamCreate) apply(cuEventCreate) apply(cuEventRecord) \
            apply(cuLaunchKernel) apply(cuStreamSynchronize) apply(cuEventSynchronize)             \
                apply(cuCtxSynchronize) apply(cuMemAllocAsync) apply(cuMemAlloc_v2)                \
                    apply(cuMemFree_v2) apply(cuMemGetInfo_v2)
#define DECLARE(name) static int (*name)();
#define LOAD(name) *(void **)&name = dlsym(library, #name);
FUNCTIONS(DECLARE)

static void *context, *function, *stream, *event;
static sigjmp_buf out;
static atomic_uint calls;
static atomic_bool waiting, ended;

static void on_signal(int number)
{
    (void)number;
    if (atomic_exchange(&waiting, false))
        siglongjmp(out, 1);
}

static void *signal_when_stuck(void *thread)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    unsigned seen = 0, looks = 0;
    while (!atomic_load(&ended)) {
        nanosleep(&pause, NULL);
        looks = atomic_load(&waiting) && seen == atomic_load(&calls) ? looks + 1 : 0;
        seen = atomic_load(&calls);
        if (looks == STUCK_LOOKS)
            pthread_kill(*(pthread_t *)thread, SIGUSR1), looks = 0;
    }
    return NULL;
}

static int spin(uint64_t ns)
{
    void *parameters[] = {&ns};
    return cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL);
}

static int wait_once(const char *kind)
{
    int result = strcmp(kind, "init") == 0     ? cuInit(0)
                 : strcmp(kind, "launch") == 0 ? spin(10 * 1000 * 1000)
                 : strcmp(kind, "stream") == 0 ? cuStreamSynchronize(stream)
                 : strcmp(kind, "event") == 0  ? cuEventSynchronize(event)
                                               : cuCtxSynchronize();
    atomic_fetch_add(&calls, 1);
    return result;
}

static int prepare(const char *kind)
{
    static const char spinner[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                                  ".visible .entry spin(.param .u64 ns) { ret; }";
    void *module;
    uint64_t pooled;
    int result = cuInit(0) | cuDevicePrimaryCtxRetain(&context, 0) | cuCtxSetCurrent(context) |
                 cuModuleLoadData(&module, spinner) |
                 cuModuleGetFunction(&function, module, "spin") | cuStreamCreate(&stream, 1) |
                 cuEventCreate(&event, 0);
    if (strcmp(kind, "launch") != 0) /* the shim looks at pools, where there are, after a wait */
        result |= cuMemAllocAsync(&pooled, (size_t)MIB, stream) | cuStreamSynchronize(stream) |
                  spin(UINT64_C(3600000000000)) | cuEventRecord(event, stream);
    return result;
}

/* How the thread was found after its jumps. */
static struct {
    unsigned jumps, calls_before, most_calls, uncancellable, blocked;
} found;

static void look_after_a_jump(void)
{
    int state;
    sigset_t own, blocked;
    unsigned made = atomic_load(&calls) - found.calls_before;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    found.uncancellable += state != PTHREAD_CANCEL_ENABLE;
    sigemptyset(&own);
    sigaddset(&own, SIGUSR1); /* blocked by its handler, which it has not returned from */
    pthread_sigmask(SIG_UNBLOCK, &own, &blocked);
    for (int number = 1; number < 32; number++)
        found.blocked += number != SIGUSR1 && sigismember(&blocked, number) == 1;
    if (found.jumps > 0 && made > found.most_calls)
        found.most_calls = made;
    found.calls_before = atomic_load(&calls);
    found.jumps++;
}

static int jump_again_and_again(const char *kind)
{
    pthread_t self = pthread_self(), signaller;
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    pthread_create(&signaller, NULL, signal_when_stuck, &self);
    if (sigsetjmp(out, 0) != 0)
        look_after_a_jump();
    while (found.jumps < ROUNDS) {
        atomic_store(&waiting, true);
        if (wait_once(kind) != 0)
            return 5;
        atomic_store(&waiting, false);
    }
    atomic_store(&ended, true);
    pthread_join(signaller, NULL);
    return 0;
}

static size_t take_all(void)
{
    size_t pieces = 0;
    uint64_t address;
    while (pieces < 1000 && cuMemAlloc_v2(&address, (size_t)PIECE) == 0)
        pieces++;
    return pieces * PIECE;
}

static void *use(void *result)
{
    uint64_t address = 0;
    size_t left, total;
    cuCtxSetCurrent(context);
    *(int *)result = cuMemAlloc_v2(&address, (size_t)MIB) | cuMemFree_v2(address) |
                     cuMemGetInfo_v2(&left, &total);
    return NULL;
}

static void *init(void *result)
{
    *(int *)result = cuInit(0);
    return NULL;
}

static int in_another_thread(void *(*function)(void *))
{
    pthread_t other;
    int result = -1;
    pthread_create(&other, NULL, function, &result);
    pthread_join(other, NULL);
    return result;
}

static void print_limits(void)
{
    size_t left, total;
    int other = in_another_thread(use);
    cuMemGetInfo_v2(&left, &total);
    printf("{\"total\": %zu, \"had\": %zu, \"calls between jumps\": %u, \"uncancellable\": %u, "
           "\"blocked signals\": %u, \"another thread\": %d}\n",
           total, take_all(), found.most_calls, found.uncancellable, found.blocked, other);
}

static void print_init(void)
{
    printf("{\"jumps\": %u}\n", found.jumps);
    fflush(stdout);
    int own = cuInit(0);
    printf("{\"own thread\": %d, \"another thread\": %d}\n", own, in_another_thread(init));
}

int main(int count, char **words)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (count != 2 || library == NULL)
        return 2;
    FUNCTIONS(LOAD)
    bool starts = strcmp(words[1], "init") == 0;
    if (!starts && prepare(words[1]) != 0)
        return 3;
    int result = jump_again_and_again(words[1]);
    if (result == 0 && starts)
        print_init();
    else if (result == 0)
        print_limits();
    fflush(stdout);
    _Exit(result); /* the GPU is busy for an hour */
}
