/* Libraries are modules that need no context; kernels are functions. */
#include "cuda/module/module.h"
#include <stdlib.h>

API CUresult cuLibraryLoadData(CUlibrary *out, const void *code, void *jit_options,
                               void *jit_values, unsigned jit_count, void *options, void *values,
                               unsigned count)
{
    struct driver *driver;
    (void)jit_options;
    (void)jit_values;
    (void)jit_count;
    (void)options;
    (void)values;
    (void)count;
    CUresult result = driver_get(&driver);
    return result == CUDA_SUCCESS ? module_load(driver, context_current(driver), code, out)
                                  : result;
}

API CUresult cuLibraryLoadFromFile(CUlibrary *out, const char *path, void *jit_options,
                                   void *jit_values, unsigned jit_count, void *options,
                                   void *values, unsigned count)
{
    void *image;
    size_t bytes;
    CUresult result = module_read(path, &image, &bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result =
        cuLibraryLoadData(out, image, jit_options, jit_values, jit_count, options, values, count);
    free(image);
    return result;
}

API CUresult cuLibraryUnload(CUlibrary library)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    return result == CUDA_SUCCESS ? module_unload(driver, library) : result;
}

API CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary library, const char *name)
{
    return module_function(library, name, out);
}

static CUresult enter_current(struct module *library)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    return result == CUDA_SUCCESS ? module_enter(driver, library) : result;
}

API CUresult cuLibraryGetModule(CUmodule *out, CUlibrary library)
{
    if (out == NULL || library == NULL || library->kind != MODULE)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = enter_current(library);
    if (result == CUDA_SUCCESS)
        *out = library;
    return result;
}

API CUresult cuKernelGetFunction(CUfunction *out, CUkernel kernel)
{
    if (out == NULL || kernel == NULL || kernel->kind != FUNCTION)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = enter_current(kernel->module);
    if (result == CUDA_SUCCESS)
        *out = kernel;
    return result;
}

API CUresult cuKernelGetLibrary(CUlibrary *out, CUkernel kernel)
{
    if (out == NULL || kernel == NULL || kernel->kind != FUNCTION)
        return CUDA_ERROR_INVALID_HANDLE;
    *out = kernel->module;
    return CUDA_SUCCESS;
}
