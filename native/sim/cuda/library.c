/* Libraries are modules that need no context; kernels are functions. */
#include "cuda/module.h"
#include <unistd.h>

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
    return result == CUDA_SUCCESS ? module_load(code, out) : result;
}

API CUresult cuLibraryLoadFromFile(CUlibrary *out, const char *path, void *jit_options,
                                   void *jit_values, unsigned jit_count, void *options,
                                   void *values, unsigned count)
{
    if (path == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (access(path, R_OK) != 0)
        return CUDA_ERROR_FILE_NOT_FOUND;
    return cuLibraryLoadData(out, path, jit_options, jit_values, jit_count, options, values, count);
}

API CUresult cuLibraryUnload(CUlibrary library)
{
    struct driver *driver;
    CUresult result = driver_get(&driver);
    return result == CUDA_SUCCESS ? module_unload(library) : result;
}

API CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary library, const char *name)
{
    return module_function(library, name, out);
}

API CUresult cuLibraryGetModule(CUmodule *out, CUlibrary library)
{
    if (out == NULL || library == NULL || library->kind != MODULE)
        return CUDA_ERROR_INVALID_HANDLE;
    *out = library;
    return CUDA_SUCCESS;
}

API CUresult cuKernelGetFunction(CUfunction *out, CUkernel kernel)
{
    if (out == NULL || kernel == NULL || kernel->kind != FUNCTION)
        return CUDA_ERROR_INVALID_HANDLE;
    *out = kernel;
    return CUDA_SUCCESS;
}

API CUresult cuKernelGetLibrary(CUlibrary *out, CUkernel kernel)
{
    if (out == NULL || kernel == NULL || kernel->kind != FUNCTION)
        return CUDA_ERROR_INVALID_HANDLE;
    *out = kernel->module;
    return CUDA_SUCCESS;
}
