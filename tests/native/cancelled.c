/* Threads that are cancelled while they allocate: the shim must keep nothing locked or lost.
 *
 *     cancelled ROUNDS BLOCK   prints what is free at the end, which is all there was
 *
 * What a thread has is noted where the main thread finds it; between a call and its note it cannot
 * be cancelled, for there is no cancellation point.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int (*cuInit)(unsigned);
static int (*cuDevicePrimaryCtxRetain)(void **, int);
static int (*cuCtxSetCurrent)(void *);
static int (*cuMemAlloc)(uint64_t *, size_t);
static int (*cuMemFree)(uint64_t);
static int (*cuMemGetInfo)(size_t *, size_t *);

static void *context;
static size_t block;
static volatile uint64_t held[64];

static void *work(void *nothing)
{
    cuCtxSetCurrent(context);
    for (unsigned turn = 0;; turn++) {
        uint64_t address = 0;
        if (held[turn % 64] != 0) {
            cuMemFree(held[turn % 64]);
            held[turn % 64] = 0;
        } else if (cuMemAlloc(&address, block) == 0) {
            held[turn % 64] = address;
        }
        pthread_testcancel();
    }
    return nothing;
}

static void cancel_one(unsigned microseconds)
{
    pthread_t thread;
    struct timespec pause = {.tv_nsec = (long)microseconds * 1000};
    if (pthread_create(&thread, NULL, work, NULL) != 0)
        exit(3);
    nanosleep(&pause, NULL);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
}

int main(int count, char **words)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (count != 3 || library == NULL)
        return 2;
    *(void **)&cuInit = dlsym(library, "cuInit");
    *(void **)&cuDevicePrimaryCtxRetain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&cuCtxSetCurrent = dlsym(library, "cuCtxSetCurrent");
    *(void **)&cuMemAlloc = dlsym(library, "cuMemAlloc_v2");
    *(void **)&cuMemFree = dlsym(library, "cuMemFree_v2");
    *(void **)&cuMemGetInfo = dlsym(library, "cuMemGetInfo_v2");
    block = (size_t)atol(words[2]);
    if (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0)
        return 4;
    cuCtxSetCurrent(context);
    size_t before, after, total;
    cuMemGetInfo(&before, &total);
    for (int round = 0; round < atoi(words[1]); round++)
        cancel_one(50 + (unsigned)rand() % 500);
    for (int place = 0; place < 64; place++)
        if (held[place] != 0)
            cuMemFree(held[place]);
    cuMemGetInfo(&after, &total);
    printf("{\"before\": %zu, \"after\": %zu}\n", before, after);
    return 0;
}
