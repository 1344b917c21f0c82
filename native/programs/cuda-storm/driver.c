#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define DEFINE(name, parameters) int(*name) parameters;
DRIVER_FUNCTIONS(DEFINE)
#undef DEFINE

void driver_load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "cuda-storm: no CUDA driver: %s\n", dlerror());
        exit(1);
    }
#define FIND(name, parameters) name = (int(*) parameters)dlsym(library, #name);
    DRIVER_FUNCTIONS(FIND)
#undef FIND
}

int driver_begin(void **context)
{
    int device, result = cuInit(0);
    if (result == CUDA_SUCCESS)
        result = cuDeviceGet(&device, 0);
    if (result == CUDA_SUCCESS)
        result = cuDevicePrimaryCtxRetain(context, device);
    return result == CUDA_SUCCESS ? cuCtxSetCurrent(*context) : result;
}
