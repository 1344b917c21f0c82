#include "driver.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { CUDA_VERSION = 12000, PER_THREAD_DEFAULT_STREAM = 2 };

typedef int lookup_function(const char *name, void **function, int version, uint64_t flags,
                            int *status);

static struct driver legacy, per_thread_default;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "cuda-work: %s: %s\n", what, why);
    exit(1);
}

void driver_check(int code, const char *what)
{
    const char *name = NULL;
    if (code == CUDA_SUCCESS)
        return;
    if (legacy.cuGetErrorName(code, &name) != CUDA_SUCCESS || name == NULL)
        name = "unknown error";
    fprintf(stderr, "cuda-work: %s: %s (%d)\n", what, name, code);
    exit(1);
}

static void *find(lookup_function *lookup, const char *name, uint64_t flags)
{
    void *function = NULL;
    if (lookup(name, &function, CUDA_VERSION, flags, NULL) != CUDA_SUCCESS || function == NULL)
        fail(name, "the driver does not have it; CUDA 12 or newer is needed");
    return function;
}

static void find_all(lookup_function *lookup, struct driver *driver, uint64_t flags)
{
#define FIND(name, parameters) driver->name = (int(*) parameters)find(lookup, #name, flags);
    DRIVER_FUNCTIONS(FIND)
#undef FIND
}

static void load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL)
        fail("no CUDA driver", dlerror());
    lookup_function *lookup = (lookup_function *)dlsym(library, "cuGetProcAddress_v2");
    if (lookup == NULL)
        fail("libcuda.so.1", "older than CUDA 12");
    find_all(lookup, &legacy, 0);
    find_all(lookup, &per_thread_default, PER_THREAD_DEFAULT_STREAM);
}

void driver_use(int ordinal)
{
    int device;
    void *context;
    load();
    driver_check(legacy.cuInit(0), "cuInit");
    driver_check(legacy.cuDeviceGet(&device, ordinal), "choosing the device");
    driver_check(legacy.cuDevicePrimaryCtxRetain(&context, device), "making a context");
    driver_check(legacy.cuCtxSetCurrent(context), "using the context");
}

const struct driver *driver_functions(bool per_thread)
{
    return per_thread ? &per_thread_default : &legacy;
}
