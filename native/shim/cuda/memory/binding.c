/* What is bound to a multicast object or a logical endpoint stays as long as it is bound: its
 * handle may be released long before. The objects themselves cost no device memory. */
#include "cuda/memory/virtual.h"

/* Logical endpoints have numbers of 32 bits of their own. This bit, which no handle has, for a
 * handle is an address or a small number, tells them from the handles that they are kept with. */
#define ENDPOINT (UINT64_C(1) << 63)

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle,
                           const CUmulticastObjectProp *properties)
{
    struct process *process = virtual_enter();
    CUresult result = REAL(cuMulticastCreate)(handle, properties);
    return virtual_leave(process, virtual_adopt(process, result, handle, -1));
}

static struct physical *by_handle(struct process *process, uint64_t handle)
{
    return process != NULL ? physicals_hold(&process->physicals, handle) : NULL;
}

static struct physical *by_address(struct process *process, CUdeviceptr address)
{
    return process != NULL ? physicals_hold_at(&process->physicals, address) : NULL;
}

/* What we do not know as a binding, for want of memory or of its object, stays charged for ever. */
static void bind(struct process *process, uint64_t key, uint64_t offset, uint64_t bytes,
                 struct physical *memory)
{
    struct physical *object = (key & ENDPOINT) != 0 ? physicals_ensure(&process->physicals, key)
                                                    : physicals_hold(&process->physicals, key);
    if (object != NULL)
        physicals_bind(&process->physicals, object, offset, bytes, memory);
    virtual_drop(process, object);
}

/* The driver has bound it, or not. */
static CUresult settle(struct process *process, CUresult result, uint64_t key, uint64_t offset,
                       uint64_t bytes, struct physical *memory)
{
    if (memory != NULL && memory->bytes > 0 && result == CUDA_SUCCESS)
        bind(process, key, offset, bytes, memory);
    else
        virtual_drop(process, memory);
    return virtual_leave(process, result);
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                            unsigned long long flags)
{
    struct process *process = virtual_enter();
    struct physical *physical = by_handle(process, memory);
    CUresult result = REAL(cuMulticastBindMem)(object, offset, memory, memory_offset, bytes, flags);
    return settle(process, result, object, offset, bytes, physical);
}

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                               CUmemGenericAllocationHandle memory, size_t memory_offset,
                               size_t bytes, unsigned long long flags)
{
    struct process *process = virtual_enter();
    struct physical *physical = by_handle(process, memory);
    CUresult result =
        REAL(cuMulticastBindMem_v2)(object, device, offset, memory, memory_offset, bytes, flags);
    return settle(process, result, object, offset, bytes, physical);
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t offset,
                             CUdeviceptr address, size_t bytes, unsigned long long flags)
{
    struct process *process = virtual_enter();
    struct physical *physical = by_address(process, address);
    CUresult result = REAL(cuMulticastBindAddr)(object, offset, address, bytes, flags);
    return settle(process, result, object, offset, bytes, physical);
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                                CUdeviceptr address, size_t bytes, unsigned long long flags)
{
    struct process *process = virtual_enter();
    struct physical *physical = by_address(process, address);
    CUresult result = REAL(cuMulticastBindAddr_v2)(object, device, offset, address, bytes, flags);
    return settle(process, result, object, offset, bytes, physical);
}

CUresult cuLogicalEndpointBindMem(CUlogicalEndpointId endpoint, CUdevice device, cuuint64_t offset,
                                  CUmemGenericAllocationHandle memory, cuuint64_t memory_offset,
                                  cuuint64_t bytes, unsigned long long flags)
{
    struct process *process = virtual_enter();
    struct physical *physical = by_handle(process, memory);
    CUresult result = REAL(cuLogicalEndpointBindMem)(endpoint, device, offset, memory,
                                                     memory_offset, bytes, flags);
    return settle(process, result, ENDPOINT | endpoint, offset, bytes, physical);
}

CUresult cuLogicalEndpointBindAddr(CUlogicalEndpointId endpoint, CUdevice device, cuuint64_t offset,
                                   void *address, cuuint64_t bytes, unsigned long long flags)
{
    struct process *process = virtual_enter();
    struct physical *physical = by_address(process, (uintptr_t)address);
    CUresult result =
        REAL(cuLogicalEndpointBindAddr)(endpoint, device, offset, address, bytes, flags);
    return settle(process, result, ENDPOINT | endpoint, offset, bytes, physical);
}

/* Bindings are set apart before the driver ends them, so that one that another thread makes in
 * their place is not taken for one of them. */
struct unbinding {
    struct process *process;
    struct physical *object;
    struct binding *apart;
};

static struct unbinding unbind_begin(uint64_t key, CUdevice device, uint64_t offset, uint64_t bytes)
{
    struct process *process = virtual_enter();
    struct unbinding unbinding = {.process = process, .object = by_handle(process, key)};
    int index = unbinding.object != NULL ? process_device(process, device) : -1;
    if (index >= 0)
        unbinding.apart =
            physicals_unbind(&process->physicals, unbinding.object, (unsigned)index, offset, bytes);
    return unbinding;
}

static CUresult unbind_end(struct unbinding unbinding, CUresult result)
{
    struct process *process = unbinding.process;
    struct physical *memory;
    if (result != CUDA_SUCCESS && unbinding.apart != NULL)
        physicals_rebind(&process->physicals, unbinding.object, unbinding.apart);
    else
        while ((memory = physicals_unbound(&unbinding.apart)) != NULL)
            virtual_drop(process, memory);
    virtual_drop(process, unbinding.object);
    return virtual_leave(process, result);
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                           size_t bytes)
{
    struct unbinding unbinding = unbind_begin(object, device, offset, bytes);
    return unbind_end(unbinding, REAL(cuMulticastUnbind)(object, device, offset, bytes));
}

/* Of all that lies within the range, which several calls may have bound. */
CUresult cuLogicalEndpointUnbind(CUlogicalEndpointId endpoint, CUdevice device, cuuint64_t offset,
                                 cuuint64_t bytes)
{
    struct unbinding unbinding = unbind_begin(ENDPOINT | endpoint, device, offset, bytes);
    return unbind_end(unbinding, REAL(cuLogicalEndpointUnbind)(endpoint, device, offset, bytes));
}

/* It ends all that this process has bound, also where other processes know the endpoint. */
CUresult cuLogicalEndpointDestroy(CUlogicalEndpointId endpoint)
{
    struct process *process = virtual_enter();
    struct physical *object =
        process != NULL ? physicals_unname(&process->physicals, ENDPOINT | endpoint) : NULL;
    CUresult result = REAL(cuLogicalEndpointDestroy)(endpoint);
    if (object != NULL && result != CUDA_SUCCESS)
        physicals_name(&process->physicals, ENDPOINT | endpoint, object);
    else
        virtual_drop(process, object);
    return virtual_leave(process, result);
}
