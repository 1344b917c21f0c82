/* Call the driver directly and through the shim, in turns, and print what a call takes.
 *
 *     hooks time ROUNDS CALLS      a line for each measurement: OPERATION SIDE NS-PER-CALL
 *     hooks call OPERATION CALLS   only call, through the shim; for strace
 *
 * Both libraries are in this process: `libcuda.so.1` is the shim, beside which the loader has put
 * the driver under its other name. Which of the two goes first alternates from round to round.
 */
#include "cuda_types.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ALLOWED ((size_t)1 << 20)
#define REFUSED ((size_t)1 << 39) /* more than any limit here */

struct driver {
    const char *side;
    CUresult (*init)(unsigned int flags);
    CUresult (*allocate)(CUdeviceptr *address, size_t bytes);
    CUresult (*release)(CUdeviceptr address);
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
    *(void **)&driver.look = dlsym(library, "cuMemGetInfo_v2");
    *(void **)&driver.launch = dlsym(library, "cuLaunchKernel");
    if (driver.launch == NULL || driver.init(0) != CUDA_SUCCESS)
        fail(soname);
    return driver;
}

static void launch(const struct driver *driver, long calls)
{
    CUfunction function = (CUfunction)(uintptr_t)0x1000;
    for (long call = 0; call < calls; call++)
        if (driver->launch(function, 64, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL) != CUDA_SUCCESS)
            fail("launching");
}

static void pair(const struct driver *driver, long calls)
{
    CUdeviceptr address;
    for (long call = 0; call < calls; call++)
        if (driver->allocate(&address, ALLOWED) != CUDA_SUCCESS ||
            driver->release(address) != CUDA_SUCCESS)
            fail("allocating and freeing");
}

static void look(const struct driver *driver, long calls)
{
    size_t available, total;
    for (long call = 0; call < calls; call++)
        if (driver->look(&available, &total) != CUDA_SUCCESS)
            fail("asking for the memory");
}

/* Through an unlimited side it is an allocation, and is freed: not comparable, and not reported. */
static void refuse(const struct driver *driver, long calls)
{
    CUdeviceptr address;
    for (long call = 0; call < calls; call++)
        if (driver->allocate(&address, REFUSED) == CUDA_SUCCESS)
            driver->release(address);
}

static const struct operation {
    const char *name;
    void (*run)(const struct driver *driver, long calls);
} operations[] = {{"launch", launch}, {"pair", pair}, {"look", look}, {"refuse", refuse}};

enum { OPERATIONS = sizeof operations / sizeof *operations };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void measure(const struct operation *operation, const struct driver *driver, long calls)
{
    double begin = now();
    operation->run(driver, calls);
    printf("%s %s %.3f\n", operation->name, driver->side, (now() - begin) / (double)calls);
}

static void measure_all(const struct driver drivers[2], long rounds, long calls)
{
    for (int index = 0; index < OPERATIONS; index++)
        for (int side = 0; side < 2; side++)
            operations[index].run(&drivers[side], calls / 10);
    for (long round = 0; round < rounds; round++)
        for (int index = 0; index < OPERATIONS; index++)
            for (int turn = 0; turn < 2; turn++)
                measure(&operations[index], &drivers[(round + turn) % 2], calls);
}

static void call_only(const struct driver *shim, const char *name, long calls)
{
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
