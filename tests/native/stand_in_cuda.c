/* A driver that does almost nothing but count its calls, for tests of the shim alone.
 *
 * One device of 1 GiB. Built -Bsymbolic as the real one, or not: then its calls to its own exports
 * come back through the shim. It has a function and a variant that no shim has ever heard of.
 */
#include "cuda_types.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const unsigned long long physical = 1ull << 30;
static atomic_ullong taken, next_address = 0x7000000000;
static atomic_int initialised, refuse_free;

#define NAMES                                                                                      \
    X(cuInit)                                                                                      \
    X(cuMemAlloc)                                                                                  \
    X(cuMemAlloc_v2)                                                                               \
    X(cuMemAlloc_v9)                                                                               \
    X(cuMemAllocManaged)                                                                           \
    X(cuMemFree_v2) X(cuMemAllocPitch_v2) X(cuMemAllocAsync) X(cuMemFreeAsync) X(cuMemGetInfo_v2)  \
        X(cuDeviceTotalMem_v2) X(cuLaunchKernel) X(cuLaunchKernel_ptsz) X(cuLaunchKernelEx)        \
            X(cuFutureFunction) X(cuGetExportTable) X(cuEventRecord) X(cuArrayCreate_v2)           \
                X(cuArray3DCreate_v2)

enum {
#define X(name) COUNT_##name,
    NAMES
#undef X
        COUNTS,
};
static atomic_int counts[COUNTS];
static const char *const names[] = {
#define X(name) #name,
    NAMES
#undef X
};
#define CALLED(name) atomic_fetch_add(&counts[COUNT_##name], 1)

int stand_in_calls(const char *name)
{
    for (int index = 0; index < COUNTS; index++)
        if (strcmp(names[index], name) == 0)
            return counts[index];
    return -1;
}

unsigned long long stand_in_taken(void)
{
    return taken;
}
void stand_in_refuse_free(int refuse)
{
    refuse_free = refuse;
}

CUresult cuInit(unsigned int flags)
{
    CALLED(cuInit);
    initialised = 1;
    return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = 0;
    return initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = (CUcontext)&counts;
    return CUDA_SUCCESS;
}

static void (*while_destroying)(void);

/* What else goes on while a context is destroyed: what is there when the next has its handle. */
void stand_in_while_destroying(void (*what)(void))
{
    while_destroying = what;
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    (void)context;
    if (while_destroying != NULL)
        while_destroying();
    return refuse_free ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    for (int index = 0; index < 16; index++)
        uuid->bytes[index] = (unsigned char)(index + 16 * device);
    return CUDA_SUCCESS;
}

/* What tools hear of calls while they are under way, as CUPTI's subscribers do. Once. */
static void (*_Atomic subscriber)(void);

void stand_in_call_back(void (*function)(void))
{
    atomic_store(&subscriber, function);
}

static void call_back(void)
{
    void (*function)(void) = atomic_exchange(&subscriber, NULL);
    if (function != NULL)
        function();
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    CALLED(cuMemAlloc_v2);
    call_back();
    if (address == NULL || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (atomic_fetch_add(&taken, bytes) + bytes > physical) {
        atomic_fetch_sub(&taken, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = atomic_fetch_add(&next_address, (bytes + 511) / 512 * 512);
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr_v1 *address, unsigned int bytes)
{
    CUdeviceptr large;
    CALLED(cuMemAlloc);
    CUresult result = cuMemAlloc_v2(&large, bytes);
    if (result == CUDA_SUCCESS)
        *address = (CUdeviceptr_v1)large;
    return result;
}

CUresult cuMemAlloc_v9(CUdeviceptr *address, size_t bytes)
{
    CALLED(cuMemAlloc_v9);
    return cuMemAlloc_v2(address, bytes);
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    (void)flags;
    CALLED(cuMemAllocManaged);
    return cuMemAlloc_v2(address, bytes);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                            unsigned int element)
{
    (void)element;
    CALLED(cuMemAllocPitch_v2);
    *pitch = (width + 511) / 512 * 512;
    return cuMemAlloc_v2(address, *pitch * height);
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    (void)stream;
    CALLED(cuMemAllocAsync);
    return cuMemAlloc_v2(address, bytes);
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    CALLED(cuMemFree_v2);
    return refuse_free || address == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    (void)stream;
    CALLED(cuMemFreeAsync);
    return cuMemFree_v2(address);
}

/* Arrays of an old driver: bytes in pages, no mapping later, and nobody to ask for the size. */
CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    CUdeviceptr place;
    CALLED(cuArray3DCreate_v2);
    if ((descriptor->Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    size_t bytes = descriptor->Width * descriptor->Height * descriptor->NumChannels;
    CUresult result = cuMemAlloc_v2(&place, (bytes + 65535) / 65536 * 65536);
    if (result == CUDA_SUCCESS)
        *array = (CUarray)place;
    return result;
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
    CUDA_ARRAY3D_DESCRIPTOR deep = {.Width = descriptor->Width,
                                    .Height = descriptor->Height,
                                    .Format = descriptor->Format,
                                    .NumChannels = descriptor->NumChannels};
    CALLED(cuArrayCreate_v2);
    return cuArray3DCreate_v2(array, &deep);
}

CUresult cuArrayDestroy(CUarray array)
{
    return cuMemFree_v2((CUdeviceptr)array);
}

CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    CALLED(cuMemGetInfo_v2);
    if (available == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *available = physical - taken;
    if (total != NULL)
        *total = physical;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    (void)device;
    CALLED(cuDeviceTotalMem_v2);
    *bytes = physical;
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared, CUstream stream,
                        void **parameters, void **extra)
{
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y;
    (void)block_z, (void)shared, (void)stream, (void)parameters, (void)extra;
    CALLED(cuLaunchKernel);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                             unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                             unsigned int block_z, unsigned int shared, CUstream stream,
                             void **parameters, void **extra)
{
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y;
    (void)block_z, (void)shared, (void)stream, (void)parameters, (void)extra;
    CALLED(cuLaunchKernel_ptsz);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters,
                          void **extra)
{
    (void)function, (void)parameters, (void)extra;
    CALLED(cuLaunchKernelEx);
    return config == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

int cuFutureFunction(int left, int right)
{
    CALLED(cuFutureFunction);
    return left * right;
}

CUresult cuGetExportTable(const void **table, const CUuuid *uuid)
{
    (void)uuid;
    CALLED(cuGetExportTable);
    *table = counts;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **entry, int version, cuuint64_t flags);
CUresult cuGetProcAddress_v2(const char *symbol, void **entry, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status);

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags);

/* name, flags & 2 wanted, least version, entry: later rows win. */
static const struct row {
    const char *name;
    int per_thread, version;
    void *entry;
} rows[] = {
    {"cuInit", 0, 2000, cuInit},
    {"cuGetProcAddress", 0, 11030, cuGetProcAddress},
    {"cuGetProcAddress", 0, 12000, cuGetProcAddress_v2},
    {"cuMemAlloc", 0, 2000, cuMemAlloc},
    {"cuMemAlloc", 0, 3020, cuMemAlloc_v2},
    {"cuMemAlloc", 0, 90000, cuMemAlloc_v9},
    {"cuMemGetInfo", 0, 3020, cuMemGetInfo_v2},
    {"cuMemGetInfo", 0, 90000, cuFutureFunction},
    {"cuMemCreate", 0, 10020, cuMemCreate},
    {"cuLaunchKernel", 0, 4000, cuLaunchKernel},
    {"cuLaunchKernel", 1, 7000, cuLaunchKernel_ptsz},
    {"cuCtxGetDevice", 0, 2000, cuCtxGetDevice},
    {"cuFutureFunction", 0, 13000, cuFutureFunction},
};

/* STAND_IN_THUNKS: what cuGetProcAddress answers with instead of the exports themselves.
 *     stable   a jump to the export, always the same for it
 *     fresh    one at a new address each time */
static void *thunk(void *entry)
{
    enum { THUNK = 16, THUNKS = 1 << 16 };
    static unsigned char *page;
    static int used, fresh;
    static void *to[THUNKS];
    const char *kind = getenv("STAND_IN_THUNKS");
    if (kind == NULL || entry == NULL)
        return entry;
    if (page == NULL)
        page = mmap(NULL, THUNK * THUNKS, PROT_READ | PROT_WRITE | PROT_EXEC,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fresh = strcmp(kind, "fresh") == 0;
    for (int index = 0; !fresh && index < used; index++)
        if (to[index] == entry)
            return page + THUNK * index;
    unsigned char *made = page + THUNK * used;
    to[used++] = entry;
    memcpy(made, "\x48\xb8", 2); /* mov rax, entry; jmp rax */
    memcpy(made + 2, &entry, sizeof entry);
    memcpy(made + 10, "\xff\xe0", 2);
    return made;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **entry, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    int known = 0;
    *entry = NULL;
    for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
        const struct row *row = &rows[index];
        if (strcmp(row->name, symbol) != 0 || (row->per_thread && !(flags & 2)))
            continue;
        known = 1;
        if (version >= row->version)
            *entry = row->entry;
    }
    *entry = thunk(*entry);
    if (status != NULL)
        *status = *entry != NULL ? 0 : known ? 2 : 1;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **entry, int version, cuuint64_t flags)
{
    cuGetProcAddress_v2(symbol, entry, version, flags, NULL);
    return *entry == NULL ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

/* Virtual memory as far as the shim's own part is tested: it makes and takes back what it is asked
 * to, by calls of its own exports, unless it was told to refuse. */

static _Atomic CUmemGenericAllocationHandle mapped_last;

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags)
{
    (void)properties, (void)flags;
    return cuMemAlloc_v2(handle, bytes);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    (void)handle;
    return refuse_free ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    (void)address, (void)bytes, (void)offset, (void)flags;
    mapped_last = handle;
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    (void)address, (void)bytes;
    return cuMemRelease(mapped_last);
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle,
                           const CUmulticastObjectProp *properties)
{
    (void)properties;
    *handle = atomic_fetch_add(&next_address, 512);
    return CUDA_SUCCESS;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                            unsigned long long flags)
{
    (void)object, (void)offset, (void)memory, (void)memory_offset, (void)bytes, (void)flags;
    return CUDA_SUCCESS;
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                           size_t bytes)
{
    (void)object, (void)device, (void)offset, (void)bytes;
    return refuse_free ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuLogicalEndpointBindMem(CUlogicalEndpointId endpoint, CUdevice device, cuuint64_t offset,
                                  CUmemGenericAllocationHandle memory, cuuint64_t memory_offset,
                                  cuuint64_t bytes, unsigned long long flags)
{
    (void)endpoint, (void)device, (void)offset, (void)memory, (void)memory_offset, (void)bytes;
    return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogicalEndpointBindAddr(CUlogicalEndpointId endpoint, CUdevice device, cuuint64_t offset,
                                   void *address, cuuint64_t bytes, unsigned long long flags)
{
    (void)endpoint, (void)device, (void)offset, (void)address, (void)bytes;
    return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogicalEndpointUnbind(CUlogicalEndpointId endpoint, CUdevice device, cuuint64_t offset,
                                 cuuint64_t bytes)
{
    return cuMulticastUnbind(endpoint, device, offset, bytes);
}

CUresult cuLogicalEndpointDestroy(CUlogicalEndpointId endpoint)
{
    return cuMemRelease(endpoint);
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
    (void)list, (void)count, (void)stream;
    return refuse_free ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
    return cuMemMapArrayAsync(list, count, stream);
}
