#include "driver.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define DEFINE(name, version, parameters) int(*name) parameters;
DRIVER_FUNCTIONS(DEFINE)
#undef DEFINE

typedef int lookup_function(const char *name, void **function, int version, uint64_t flags,
                            int *status);

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "cuda-play: %s: %s\n", what, why);
    exit(1);
}

const char *driver_error_name(int code)
{
    const char *name = NULL;
    if (cuGetErrorName == NULL || cuGetErrorName(code, &name) != CUDA_SUCCESS || name == NULL)
        return "unknown error";
    return name;
}

void driver_check(int code, const char *what)
{
    if (code == CUDA_SUCCESS)
        return;
    fprintf(stderr, "cuda-play: %s: %s (%d)\n", what, driver_error_name(code), code);
    exit(1);
}

static void *find(lookup_function *lookup, const char *name, int version)
{
    void *function = NULL;
    if (lookup(name, &function, version, 0, NULL) != CUDA_SUCCESS || function == NULL)
        fail(name, "the driver does not have it; CUDA 12 or newer is needed");
    return function;
}

void driver_load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL)
        fail("no CUDA driver", dlerror());
    lookup_function *lookup = (lookup_function *)dlsym(library, "cuGetProcAddress_v2");
    if (lookup == NULL)
        fail("libcuda.so.1", "older than CUDA 12");
#define FIND(name, version, parameters) name = (int(*) parameters)find(lookup, #name, version);
    DRIVER_FUNCTIONS(FIND)
#undef FIND
    driver_check(cuInit(0), "cuInit");
}

void driver_use(int ordinal)
{
    int device;
    void *context;
    driver_check(cuDeviceGet(&device, ordinal), "choosing the device");
    driver_check(cuDevicePrimaryCtxRetain(&context, device), "making a context");
    driver_check(cuCtxSetCurrent(context), "using the context");
}
