/* A program that has some of everything that the shim keeps in memory, and frees nothing; a forked
 * child of it ends as any program does. For leak sanitizers: nothing of that is a leak. */
#include "cuda_types.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

CUresult cuInit(unsigned int flags);
CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream);
CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties);
CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr near,
                             unsigned long long flags);
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags);
CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle,
                           const CUmulticastObjectProp *properties);
CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle object, CUdevice device);
CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                            unsigned long long flags);
CUresult cuGraphCreate(CUgraph *graph, unsigned int flags);
CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags);

enum { PAGE = 2 << 20, ALLOCATIONS = 400, MAPPINGS = 80, POOLS = 6 };

#define DO(call)                                                                                   \
    if ((result = (call)) != CUDA_SUCCESS)                                                         \
    return printf("%s: %d\n", #call, result), 1

static const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE};

static int allocate(void)
{
    CUresult result;
    CUdeviceptr address;
    CUmemoryPool pool;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
    for (int turn = 0; turn < ALLOCATIONS; turn++)
        DO(cuMemAlloc_v2(&address, 512));
    for (int turn = 0; turn < POOLS; turn++)
        DO(cuMemPoolCreate(&pool, &properties));
    DO(cuMemAllocAsync(&address, 512, NULL));
    return 0;
}

static int map(void)
{
    CUresult result;
    CUdeviceptr start;
    CUmemGenericAllocationHandle memory, object;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
    CUmulticastObjectProp team = {.numDevices = 1, .size = PAGE};
    DO(cuMemAddressReserve(&start, MAPPINGS * PAGE, 0, 0, 0));
    DO(cuMemCreate(&memory, PAGE, &properties, 0));
    for (CUdeviceptr turn = 0; turn < MAPPINGS; turn++)
        DO(cuMemMap(start + turn * PAGE, PAGE, 0, memory, 0));
    DO(cuMulticastCreate(&object, &team));
    DO(cuMulticastAddDevice(object, 0));
    DO(cuMulticastBindMem(object, 0, memory, 0, PAGE, 0));
    DO(cuMemRelease(memory));
    return 0;
}

static int describe(void)
{
    CUresult result;
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.bytesize = PAGE};
    params.poolProps =
        (CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
    DO(cuGraphCreate(&graph, 0));
    DO(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return 0;
}

int main(void)
{
    CUresult result;
    CUcontext context;
    int status;
    DO(cuInit(0));
    DO(cuCtxCreate_v2(&context, 0, 0));
    if (allocate() != 0 || map() != 0 || describe() != 0)
        return 1;
    pid_t child = fork();
    if (child == 0)
        return 0;
    waitpid(child, &status, 0);
    if (status != 0)
        printf("the child ended with status %d\n", status);
    return status != 0;
}
