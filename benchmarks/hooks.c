/* Call the driver directly and through the shim, in turns, and print what a call takes.
 *
 *     hooks time ROUNDS CALLS      a line for each measurement: OPERATION SIDE NS-PER-CALL
 *     hooks call OPERATION CALLS   only call, through the shim; for strace. Also `keep`
 *
 * Both libraries are in this process: `libcuda.so.1` is the shim, beside which the loader has put
 * the driver under its other name. Which of the two goes first alternates from round to round.
 * `crowd` is launching by eight processes at once, in CPU time, for they may have to share CPUs.
 */
#include "cuda_types.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ALLOWED ((size_t)1 << 20)
#define REFUSED ((size_t)1 << 41) /* more than any limit, and than the driver has */

enum { BATCH = 1000, KINDS = 16, CROWD = 8, HOLES = 200 };

static bool silent;

struct driver {
    const char *side;
    CUresult (*init)(unsigned int flags);
    CUresult (*allocate)(CUdeviceptr *address, size_t bytes);
    CUresult (*release)(CUdeviceptr address);
    CUresult (*allocate_async)(CUdeviceptr *address, size_t bytes, CUstream stream);
    CUresult (*release_async)(CUdeviceptr address, CUstream stream);
    CUresult (*create)(CUmemGenericAllocationHandle *memory, size_t bytes,
                       const CUmemAllocationProp *properties, unsigned long long flags);
    CUresult (*drop)(CUmemGenericAllocationHandle memory);
    CUresult (*look)(size_t *available, size_t *total);
    CUresult (*launch)(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                       unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                       unsigned int block_z, unsigned int shared, CUstream stream,
                       void **parameters, void **extra);
};

static void fail(const char *what)
{
    fprintf(stderr, "hooks: %s failed\n", what);
    exit(1);
}

static struct driver load(const char *soname, const char *side)
{
    void *library = dlopen(soname, RTLD_NOW);
    if (library == NULL)
        fail(dlerror());
    struct driver driver = {.side = side};
    *(void **)&driver.init = dlsym(library, "cuInit");
    *(void **)&driver.allocate = dlsym(library, "cuMemAlloc_v2");
    *(void **)&driver.release = dlsym(library, "cuMemFree_v2");
    *(void **)&driver.allocate_async = dlsym(library, "cuMemAllocAsync");
    *(void **)&driver.release_async = dlsym(library, "cuMemFreeAsync");
    *(void **)&driver.create = dlsym(library, "cuMemCreate");
    *(void **)&driver.drop = dlsym(library, "cuMemRelease");
    *(void **)&driver.look = dlsym(library, "cuMemGetInfo_v2");
    *(void **)&driver.launch = dlsym(library, "cuLaunchKernel");
    if (driver.launch == NULL || driver.init(0) != CUDA_SUCCESS)
        fail(soname);
    return driver;
}

/* The time of one kind of call, in parts. */
struct watch {
    double begun, sum;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void start(struct watch *watch)
{
    watch->begun = now();
}

static void stop(struct watch *watch)
{
    watch->sum += now() - watch->begun;
}

static void report(const char *name, const struct driver *driver, const struct watch *watch,
                   long calls)
{
    if (!silent)
        printf("%s %s %.3f\n", name, driver->side, watch->sum / (double)calls);
}

/* One of several functions, each with a shape of its own. */
static void launch_one(const struct driver *driver, unsigned kind)
{
    CUfunction function = (CUfunction)(uintptr_t)(0x1000 + 64 * kind);
    if (driver->launch(function, 64 + kind, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL) != CUDA_SUCCESS)
        fail("launching");
}

static void launch(const struct driver *driver, long calls)
{
    struct watch watch = {0};
    start(&watch);
    for (long call = 0; call < calls; call++)
        launch_one(driver, 0);
    stop(&watch);
    report("launch", driver, &watch, calls);
}

/* Several functions in turn. */
static void kinds(const struct driver *driver, long calls)
{
    struct watch watch = {0};
    start(&watch);
    for (long call = 0; call < calls; call++)
        launch_one(driver, (unsigned)call % KINDS);
    stop(&watch);
    report("kinds", driver, &watch, calls);
}

/* What the processes of a crowd share: who is ready, and what each took. */
struct crowd {
    atomic_int ready;
    double took[CROWD];
};

static double cpu_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* A child: attached and warm before all begin together. */
static void launch_in_crowd(const struct driver *driver, long calls, struct crowd *crowd, int own)
{
    for (long call = 0; call < calls / 10; call++)
        launch_one(driver, 0);
    atomic_fetch_add(&crowd->ready, 1);
    while (atomic_load(&crowd->ready) < CROWD)
        usleep(100);
    double begun = cpu_now();
    for (long call = 0; call < calls; call++)
        launch_one(driver, 0);
    crowd->took[own] = cpu_now() - begun;
    _exit(0);
}

static void crowd(const struct driver *driver, long calls)
{
    struct crowd *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct watch watch = {0};
    if (shared == MAP_FAILED)
        fail("sharing memory");
    for (int child = 0; child < CROWD; child++)
        if (fork() == 0)
            launch_in_crowd(driver, calls, shared, child);
    for (int child = 0; child < CROWD; child++) {
        int status;
        if (wait(&status) < 0 || status != 0)
            fail("a process of the crowd");
    }
    for (int child = 0; child < CROWD; child++)
        watch.sum += shared->took[child];
    munmap(shared, sizeof *shared);
    report("crowd", driver, &watch, calls * CROWD);
}

/* As a program that holds some: so many allocations, then the same frees. */
static void take(const struct driver *driver, CUdeviceptr addresses[BATCH])
{
    for (int index = 0; index < BATCH; index++)
        if (driver->allocate(&addresses[index], ALLOWED) != CUDA_SUCCESS)
            fail("allocating");
}

static void give(const struct driver *driver, const CUdeviceptr addresses[BATCH])
{
    for (int index = 0; index < BATCH; index++)
        if (driver->release(addresses[index]) != CUDA_SUCCESS)
            fail("freeing");
}

static void allocate(const struct driver *driver, long calls)
{
    static CUdeviceptr addresses[BATCH];
    struct watch taking = {0}, giving = {0};
    for (long call = 0; call < calls; call += BATCH) {
        start(&taking);
        take(driver, addresses);
        stop(&taking);
        start(&giving);
        give(driver, addresses);
        stop(&giving);
    }
    report("allocate", driver, &taking, calls);
    report("free", driver, &giving, calls);
}

static void look(const struct driver *driver, long calls)
{
    size_t available, total;
    struct watch watch = {0};
    start(&watch);
    for (long call = 0; call < calls; call++)
        if (driver->look(&available, &total) != CUDA_SUCCESS)
            fail("asking for the memory");
    stop(&watch);
    report("look", driver, &watch, calls);
}

static CUdeviceptr take_pooled(const struct driver *driver)
{
    CUdeviceptr address;
    if (driver->allocate_async(&address, 512, NULL) != CUDA_SUCCESS)
        fail("allocating from a pool");
    return address;
}

static void give_pooled(const struct driver *driver, CUdeviceptr address)
{
    if (driver->release_async(address, NULL) != CUDA_SUCCESS)
        fail("freeing to a pool");
}

static void pair(const struct driver *driver, const char *name, long calls)
{
    struct watch watch = {0};
    start(&watch);
    for (long call = 0; call < calls; call++)
        give_pooled(driver, take_pooled(driver));
    stop(&watch);
    report(name, driver, &watch, calls);
}

/* One at a time, as from a pool that always has it. */
static void pooled(const struct driver *driver, long calls)
{
    pair(driver, "pooled", calls);
}

/* The same among others that are held, with a hole between any two. */
static void holes(const struct driver *driver, long calls)
{
    CUdeviceptr addresses[2 * HOLES];
    for (int index = 0; index < 2 * HOLES; index++)
        addresses[index] = take_pooled(driver);
    for (int index = 0; index < 2 * HOLES; index += 2)
        give_pooled(driver, addresses[index]);
    pair(driver, "holes", calls);
    for (int index = 2 * HOLES - 1; index > 0; index -= 2)
        give_pooled(driver, addresses[index]);
}

static void physical(const struct driver *driver, long calls)
{
    CUmemGenericAllocationHandle memory;
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    struct watch watch = {0};
    start(&watch);
    for (long call = 0; call < calls; call++)
        if (driver->create(&memory, 2 << 20, &properties, 0) != CUDA_SUCCESS ||
            driver->drop(memory) != CUDA_SUCCESS)
            fail("making physical memory");
    stop(&watch);
    report("physical", driver, &watch, calls);
}

/* Without freeing: what is counted here and not there belongs to the free. */
static void keep(const struct driver *driver, long calls)
{
    CUdeviceptr address;
    for (long call = 0; call < calls; call++)
        if (driver->allocate(&address, ALLOWED) != CUDA_SUCCESS)
            fail("allocating");
}

/* Refused by the driver on its side, by the limit on the shim's. */
static void refuse(const struct driver *driver, long calls)
{
    CUdeviceptr address;
    struct watch watch = {0};
    start(&watch);
    for (long call = 0; call < calls; call++)
        if (driver->allocate(&address, REFUSED) != CUDA_ERROR_OUT_OF_MEMORY)
            fail("being refused");
    stop(&watch);
    report("refuse", driver, &watch, calls);
}

static const struct operation {
    const char *name;
    void (*run)(const struct driver *driver, long calls);
} operations[] = {{"launch", launch},     {"kinds", kinds},       {"crowd", crowd},
                  {"allocate", allocate}, {"pooled", pooled},     {"holes", holes},
                  {"physical", physical}, {"look", look},         {"refuse", refuse}};

enum { OPERATIONS = sizeof operations / sizeof *operations };

static void measure_all(const struct driver drivers[2], long rounds, long calls)
{
    silent = true;
    for (int index = 0; index < OPERATIONS; index++)
        for (int side = 0; side < 2; side++)
            operations[index].run(&drivers[side], calls / 10);
    silent = false;
    for (long round = 0; round < rounds; round++)
        for (int index = 0; index < OPERATIONS; index++)
            for (int turn = 0; turn < 2; turn++)
                operations[index].run(&drivers[(round + turn) % 2], calls);
}

static void call_only(const struct driver *shim, const char *name, long calls)
{
    silent = true;
    if (strcmp(name, "keep") == 0)
        keep(shim, calls);
    for (int index = 0; index < OPERATIONS; index++)
        if (strcmp(operations[index].name, name) == 0)
            operations[index].run(shim, calls);
}

int main(int count, char **words)
{
    if (count != 4)
        return 2;
    struct driver shim = load("libcuda.so.1", "shim");
    struct driver drivers[] = {load("libvcuda-real.so.1", "driver"), shim};
    if (drivers[0].launch == shim.launch)
        fail("finding the shim beside the driver");
    if (strcmp(words[1], "time") == 0)
        measure_all(drivers, atol(words[2]), atol(words[3]));
    else
        call_only(&shim, words[2], atol(words[3]));
    return 0;
}
