#include "cuda/time/collective.h"

#include <string.h>

/* What NCCL calls its kernels, since 2.19 and before. */
static const char *const beginnings[] = {"ncclDevKernel", "ncclKernel_"};

/* Of the all-reduce that vLLM and SGLang have of their own, within a mangled name. */
static const char reduce[] = "cross_device_reduce_";

static bool is_collective(const char *name)
{
    for (size_t index = 0; index < sizeof beginnings / sizeof *beginnings; index++)
        if (strncmp(name, beginnings[index], strlen(beginnings[index])) == 0)
            return true;
    return strstr(name, reduce) != NULL;
}

bool collective_has(struct process *process, const void *handle)
{
    struct pointer found;
    return collective_any(process) &&
           pointers_find(&process->collectives, (uintptr_t)handle, &found) == 0;
}

/* The driver gives handles out again: one that was a collective's may be another's now. */
void collective_set(struct process *process, const void *handle, bool waits)
{
    struct pointer pointer = {.address = (uintptr_t)handle}, taken;
    if (waits && pointers_add(&process->collectives, pointer) == 0)
        atomic_store_explicit(&process->collective_count, 1, memory_order_relaxed);
    else if (collective_any(process))
        pointers_take(&process->collectives, pointer.address, &taken);
}

/* Whichever the driver has; what both begin with. */
struct kernel_params {
    CUfunction function;
    unsigned int shape[7];
    void **parameters, **extra;
    CUkernel kernel; /* of version 2 only */
    CUcontext context;
};

bool collective_node(struct process *process, CUgraphNode node)
{
    struct kernel_params params = {.kernel = NULL};
    if (!collective_any(process))
        return false;
    CUresult result = REAL(cuGraphKernelNodeGetParams_v2)(node, &params);
    if (result == CUDA_ERROR_NOT_FOUND || result == CUDA_ERROR_NOT_SUPPORTED) /* before 12.0 */
        result = REAL(cuGraphKernelNodeGetParams)(node, &params);
    return result == CUDA_SUCCESS &&
           (collective_has(process, params.function) || collective_has(process, params.kernel));
}

static CUresult named(CUresult result, void *const *handle, const char *name)
{
    struct process *process = result == CUDA_SUCCESS ? process_limited() : NULL;
    if (process != NULL)
        collective_set(process, *handle, is_collective(name));
    return result;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    return named(REAL(cuModuleGetFunction)(function, module, name), (void **)function, name);
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    return named(REAL(cuLibraryGetKernel)(kernel, library, name), (void **)kernel, name);
}
