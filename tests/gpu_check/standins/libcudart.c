/* As much of the CUDA runtime as the check calls, over the driver that the loader finds.
 *
 * STANDIN_OBJECTS names a function of the driver: the runtime answers 103 where cuGetProcAddress
 * answers with the shim's for it. What NVIDIA's own runtime objects to, if anything, is unknown.
 * STANDIN_BYPASS: it uses the driver's own file, where that lies beside the shim.
 */
#include <dlfcn.h>
#include <stdlib.h>

enum { UNTRUSTED = 103, NO_DRIVER = 35, VERSION = 12000 };

static int (*find(const char *name))()
{
    static void *driver;
    if (driver == NULL)
        driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (getenv("STANDIN_BYPASS") != NULL) {
        void *own = dlopen("libvcuda-real.so.1", RTLD_NOW | RTLD_NOLOAD);
        driver = own != NULL ? own : driver;
    }
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

int cudaDeviceGetAttribute(int *value, int attribute, int device)
{
    int result = ready();
    return result ? result : find("cuDeviceGetAttribute")(value, attribute, device);
}

int cudaLibraryLoadData(void **library, const void *code, void *jit_options, void **jit_values,
                        unsigned jit_count, void *options, void **values, unsigned count)
{
    (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    int result = ready();
    return result ? result : find("cuModuleLoadData")(library, code);
}

int cudaLibraryGetKernel(void **kernel, void *library, const char *name)
{
    return find("cuModuleGetFunction")(kernel, library, name);
}

struct dim3 {
    unsigned x, y, z;
};

int cudaLaunchKernel(void *kernel, struct dim3 grid, struct dim3 block, void **parameters,
                     size_t shared, void *stream)
{
    return find("cuLaunchKernel")(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                  (unsigned)shared, stream, parameters, NULL);
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
