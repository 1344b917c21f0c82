/* Copies between contexts, and those of the 32-bit API. */
#include "cuda/context/context.h"

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
