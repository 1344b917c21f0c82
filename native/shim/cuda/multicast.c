/* Multicast objects cost no device memory; what is bound to one stays as long as it is bound. */
#include "cuda/virtual.h"

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle,
                           const CUmulticastObjectProp *properties)
{
    struct process *process = virtual_enter();
    CUresult result = REAL(cuMulticastCreate)(handle, properties);
    return virtual_leave(process, virtual_adopt(process, result, handle, -1));
}

/* What we do not know as a binding, for want of memory or of its object, stays charged for ever. */
static void bind(struct process *process, CUmemGenericAllocationHandle handle, size_t offset,
                 size_t bytes, struct physical *physical)
{
    struct physical *object = physicals_hold(&process->physicals, handle);
    if (object != NULL)
        physicals_bind(&process->physicals, object, offset, bytes, physical);
    virtual_drop(process, object);
}

/* The driver has bound it, or not. */
static CUresult settle(struct process *process, CUresult result,
                       CUmemGenericAllocationHandle handle, size_t offset, size_t bytes,
                       struct physical *physical)
{
    if (physical != NULL && physical->bytes > 0 && result == CUDA_SUCCESS)
        bind(process, handle, offset, bytes, physical);
    else
        virtual_drop(process, physical);
    return virtual_leave(process, result);
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                            unsigned long long flags)
{
    struct process *process = virtual_enter();
    struct physical *physical =
        process != NULL ? physicals_hold(&process->physicals, memory) : NULL;
    CUresult result = REAL(cuMulticastBindMem)(object, offset, memory, memory_offset, bytes, flags);
    return settle(process, result, object, offset, bytes, physical);
}

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                               CUmemGenericAllocationHandle memory, size_t memory_offset,
                               size_t bytes, unsigned long long flags)
{
    struct process *process = virtual_enter();
    struct physical *physical =
        process != NULL ? physicals_hold(&process->physicals, memory) : NULL;
    CUresult result =
        REAL(cuMulticastBindMem_v2)(object, device, offset, memory, memory_offset, bytes, flags);
    return settle(process, result, object, offset, bytes, physical);
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t offset,
                             CUdeviceptr address, size_t bytes, unsigned long long flags)
{
    struct process *process = virtual_enter();
    struct physical *physical =
        process != NULL ? physicals_hold_at(&process->physicals, address) : NULL;
    CUresult result = REAL(cuMulticastBindAddr)(object, offset, address, bytes, flags);
    return settle(process, result, object, offset, bytes, physical);
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                                CUdeviceptr address, size_t bytes, unsigned long long flags)
{
    struct process *process = virtual_enter();
    struct physical *physical =
        process != NULL ? physicals_hold_at(&process->physicals, address) : NULL;
    CUresult result = REAL(cuMulticastBindAddr_v2)(object, device, offset, address, bytes, flags);
    return settle(process, result, object, offset, bytes, physical);
}

/* The memory behind a binding, which is one no more; NULL if we do not know it. */
static struct physical *unbind(struct process *process, struct physical *object, CUdevice device,
                               size_t offset, size_t bytes)
{
    int index = process_device(process, device);
    return index < 0
               ? NULL
               : physicals_unbind(&process->physicals, object, (unsigned)index, offset, bytes);
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                           size_t bytes)
{
    struct process *process = virtual_enter();
    struct physical *known = process != NULL ? physicals_hold(&process->physicals, object) : NULL;
    struct physical *physical =
        known != NULL ? unbind(process, known, device, offset, bytes) : NULL;
    CUresult result = REAL(cuMulticastUnbind)(object, device, offset, bytes);
    if (physical != NULL && result != CUDA_SUCCESS)
        physicals_bind(&process->physicals, known, offset, bytes, physical);
    else
        virtual_drop(process, physical);
    virtual_drop(process, known);
    return virtual_leave(process, result);
}
