/* Threads that are cancelled while they allocate: the shim must keep nothing locked or lost.
 *
 *     cancelled ROUNDS BLOCK [KIND]   prints what is free at the end, which is all there was, and
 *                                     how many descriptors came to stay
 *
 * KIND: `pool`, `module`, or memory that is simply allocated.
 *
 * What a thread has is noted where the main thread finds it; between a call and its note it cannot
 * be cancelled, for there is no cancellation point.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int (*cuInit)(unsigned);
static int (*cuDevicePrimaryCtxRetain)(void **, int);
static int (*cuCtxSetCurrent)(void *);
static int (*cuMemAlloc)(uint64_t *, size_t);
static int (*cuMemFree)(uint64_t);
static int (*cuMemGetInfo)(size_t *, size_t *);
static int (*cuMemAllocAsync)(uint64_t *, size_t, void *);
static int (*cuMemFreeAsync)(uint64_t, void *);
static int (*cuCtxSynchronize)(void);
static int (*cuModuleLoadData)(void **, const void *);
static int (*cuModuleUnload)(void *);

static void *context;
static size_t block;
static volatile uint64_t held[64];

struct kind {
    int (*take)(uint64_t *);
    int (*give)(uint64_t);
};

static int take_memory(uint64_t *address)
{
    return cuMemAlloc(address, block);
}

static int give_memory(uint64_t address)
{
    return cuMemFree(address);
}

static int take_pooled(uint64_t *address)
{
    return cuMemAllocAsync(address, block, NULL);
}

static int give_pooled(uint64_t address)
{
    int result = cuMemFreeAsync(address, NULL);
    return cuCtxSynchronize() != 0 ? 1 : result;
}

static int take_module(uint64_t *module)
{
    void *loaded;
    int result = cuModuleLoadData(&loaded, ".version 8.0\n.target sm_70\n.address_size 64\n");
    *module = result == 0 ? (uintptr_t)loaded : 0;
    return result;
}

static int give_module(uint64_t module)
{
    return cuModuleUnload((void *)(uintptr_t)module);
}

static struct kind kind = {take_memory, give_memory};

static int descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder != NULL && readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

static void *work(void *nothing)
{
    cuCtxSetCurrent(context);
    for (unsigned turn = 0;; turn++) {
        uint64_t address = 0;
        if (held[turn % 64] != 0) {
            kind.give(held[turn % 64]);
            held[turn % 64] = 0;
        } else if (kind.take(&address) == 0) {
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
    if (count < 3 || library == NULL)
        return 2;
    *(void **)&cuInit = dlsym(library, "cuInit");
    *(void **)&cuDevicePrimaryCtxRetain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&cuCtxSetCurrent = dlsym(library, "cuCtxSetCurrent");
    *(void **)&cuMemAlloc = dlsym(library, "cuMemAlloc_v2");
    *(void **)&cuMemFree = dlsym(library, "cuMemFree_v2");
    *(void **)&cuMemGetInfo = dlsym(library, "cuMemGetInfo_v2");
    *(void **)&cuMemAllocAsync = dlsym(library, "cuMemAllocAsync");
    *(void **)&cuMemFreeAsync = dlsym(library, "cuMemFreeAsync");
    *(void **)&cuCtxSynchronize = dlsym(library, "cuCtxSynchronize");
    *(void **)&cuModuleLoadData = dlsym(library, "cuModuleLoadData");
    *(void **)&cuModuleUnload = dlsym(library, "cuModuleUnload");
    if (count > 3 && strcmp(words[3], "pool") == 0)
        kind = (struct kind){take_pooled, give_pooled};
    else if (count > 3 && strcmp(words[3], "module") == 0)
        kind = (struct kind){take_module, give_module};
    block = (size_t)atol(words[2]);
    if (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0)
        return 4;
    cuCtxSetCurrent(context);
    size_t before, after, total;
    cuMemGetInfo(&before, &total);
    int open = descriptors();
    for (int round = 0; round < atoi(words[1]); round++)
        cancel_one(50 + (unsigned)rand() % 500);
    for (int place = 0; place < 64; place++)
        if (held[place] != 0)
            kind.give(held[place]);
    cuMemGetInfo(&after, &total);
    printf("{\"before\": %zu, \"after\": %zu, \"stay\": %d}\n", before, after,
           descriptors() - open);
    return 0;
}
