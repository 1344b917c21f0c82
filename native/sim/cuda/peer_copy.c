/* Copies between contexts, of the 32-bit API, and with arrays, whose contents are not simulated. */
#include "cuda/array.h"
#include "cuda/context.h"

API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes);
API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);

static bool are_contexts(const struct context *one, const struct context *other)
{
    return one != NULL && one->kind == CONTEXT && other != NULL && other->kind == CONTEXT;
}

API CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                          CUcontext from_context, size_t bytes)
{
    return are_contexts(to_context, from_context) ? cuMemcpyDtoD_v2(to, from, bytes)
                                                  : CUDA_ERROR_INVALID_CONTEXT;
}
ALSO(cuMemcpyPeer, cuMemcpyPeer_ptds);

API CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                               CUcontext from_context, size_t bytes, CUstream stream)
{
    return are_contexts(to_context, from_context) ? cuMemcpyDtoDAsync_v2(to, from, bytes, stream)
                                                  : CUDA_ERROR_INVALID_CONTEXT;
}
ALSO(cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz);

API CUresult cuMemcpyDtoD(uint32_t to, uint32_t from, unsigned bytes)
{
    return cuMemcpyDtoD_v2(to, from, bytes);
}

API CUresult cuMemcpyDtoDAsync(uint32_t to, uint32_t from, unsigned bytes, CUstream stream)
{
    return cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}

static CUresult with_arrays(CUarray one, CUarray other)
{
    struct array found;
    CUresult result = array_look(one, false, &found);
    if (result == CUDA_SUCCESS)
        result = array_look(other, false, &found);
    return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : result;
}

API CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset,
                             size_t bytes)
{
    (void)to_offset, (void)from_offset, (void)bytes;
    return with_arrays(to, from);
}
ALSO(cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds);

API CUresult cuMemcpyAtoA(CUarray to, unsigned to_offset, CUarray from, unsigned from_offset,
                          unsigned bytes)
{
    return cuMemcpyAtoA_v2(to, to_offset, from, from_offset, bytes);
}

API CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t from_offset, size_t bytes)
{
    (void)to, (void)from_offset, (void)bytes;
    return with_arrays(from, from);
}
ALSO(cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds);

API CUresult cuMemcpyAtoD(uint32_t to, CUarray from, unsigned from_offset, unsigned bytes)
{
    return cuMemcpyAtoD_v2(to, from, from_offset, bytes);
}

API CUresult cuMemcpyDtoA_v2(CUarray to, size_t to_offset, CUdeviceptr from, size_t bytes)
{
    (void)from, (void)to_offset, (void)bytes;
    return with_arrays(to, to);
}
ALSO(cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds);

API CUresult cuMemcpyDtoA(CUarray to, unsigned to_offset, uint32_t from, unsigned bytes)
{
    return cuMemcpyDtoA_v2(to, to_offset, from, bytes);
}
