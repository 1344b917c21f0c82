/* As much of the CUDA runtime as the check calls, over the driver that the loader finds.
 *
 * STANDIN_OBJECTS names a function of the driver: the runtime answers 103 where cuGetProcAddress
 * answers with the shim's for it. What NVIDIA's own runtime objects to, if anything, is unknown.
 */
#include <dlfcn.h>
#include <stdlib.h>

enum { UNTRUSTED = 103, NO_DRIVER = 35, VERSION = 12000 };

static int (*find(const char *name))()
{
    static void *driver;
    if (driver == NULL)
        driver = dlopen("libcuda.so.1", RTLD_NOW);
    return (int (*)())(driver == NULL ? NULL : dlsym(driver, name));
}

static int objects(void)
{
    const char *name = getenv("STANDIN_OBJECTS");
    void *driver = dlopen("libvcuda-real.so.1", RTLD_NOW | RTLD_NOLOAD), *entry = NULL, *own = NULL;
    if (name == NULL || driver == NULL)
        return 0;
    find("cuGetProcAddress")(name, &entry, VERSION, 0ULL);
    ((int (*)())dlsym(driver, "cuGetProcAddress"))(name, &own, VERSION, 0ULL);
    return entry != own;
}

static int ready(void)
{
    static void *context;
    if (find("cuInit") == NULL)
        return NO_DRIVER;
    if (objects())
        return UNTRUSTED;
    if (context != NULL)
        return 0;
    int result = find("cuInit")(0);
    return result
               ? result
               : find("cuDevicePrimaryCtxRetain")(&context, 0) || find("cuCtxSetCurrent")(context);
}

int cudaGetDeviceCount(int *count)
{
    int result = ready();
    return result ? result : find("cuDeviceGetCount")(count);
}

int cudaFree(void *address)
{
    int result = ready();
    return result || address == NULL ? result : find("cuMemFree_v2")(address);
}

int cudaMalloc(void **address, size_t size)
{
    int result = ready();
    return result ? result : find("cuMemAlloc_v2")(address, size);
}

int cudaDeviceSynchronize(void)
{
    int result = ready();
    return result ? result : find("cuCtxSynchronize")();
}

int cudaRuntimeGetVersion(int *version)
{
    *version = VERSION;
    return 0;
}
