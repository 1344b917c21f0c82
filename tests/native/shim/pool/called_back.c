/* A driver that calls a tool back within an allocation from a pool, as CUPTI does: once, before the
 * simulated one (overlaid_driver.py). */
#include "cuda_types.h"

#include <dlfcn.h>
#include <stddef.h>

static void (*subscriber)(void);

void call_back(void (*function)(void))
{
    subscriber = function;
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    CUresult (*allocate)(CUdeviceptr *, size_t, CUstream) =
        dlsym(dlopen(SIMULATED, RTLD_NOW), "cuMemAllocAsync");
    void (*function)(void) = subscriber;
    subscriber = NULL;
    if (function != NULL)
        function();
    return allocate(address, bytes, stream);
}
