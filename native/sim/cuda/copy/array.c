/* Copies of one row to and from arrays; the second of each pair is of the 32-bit API. */
#include "cuda/copy/block.h"

static struct copy_side in_array(CUarray array, size_t offset)
{
    return (struct copy_side){.memory = BLOCK_ARRAY, .array = array, .x_bytes = offset};
}

static struct copy_side on_host(const void *address)
{
    return (struct copy_side){.memory = BLOCK_HOST, .host = (void *)(uintptr_t)address};
}

static struct copy_side on_device(CUdeviceptr address)
{
    return (struct copy_side){.memory = BLOCK_DEVICE, .device = address};
}

static struct copy_params row(struct copy_side to, struct copy_side from, size_t bytes)
{
    return (struct copy_params){from, to, bytes, 1, 1};
}

API CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset,
                             size_t bytes)
{
    return block_copy(row(in_array(to, to_offset), in_array(from, from_offset), bytes));
}
ALSO(cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds);

API CUresult cuMemcpyAtoA(CUarray to, unsigned to_offset, CUarray from, unsigned from_offset,
                          unsigned bytes)
{
    return cuMemcpyAtoA_v2(to, to_offset, from, from_offset, bytes);
}

API CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t bytes)
{
    return block_copy(row(on_device(to), in_array(from, offset), bytes));
}
ALSO(cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds);

API CUresult cuMemcpyAtoD(uint32_t to, CUarray from, unsigned offset, unsigned bytes)
{
    return cuMemcpyAtoD_v2(to, from, offset, bytes);
}

API CUresult cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t bytes)
{
    return block_copy(row(in_array(to, offset), on_device(from), bytes));
}
ALSO(cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds);

API CUresult cuMemcpyDtoA(CUarray to, unsigned offset, uint32_t from, unsigned bytes)
{
    return cuMemcpyDtoA_v2(to, offset, from, bytes);
}

API CUresult cuMemcpyHtoA_v2(CUarray to, size_t offset, const void *from, size_t bytes)
{
    return block_copy(row(in_array(to, offset), on_host(from), bytes));
}
ALSO(cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds);

API CUresult cuMemcpyHtoA(CUarray to, unsigned offset, const void *from, unsigned bytes)
{
    return cuMemcpyHtoA_v2(to, offset, from, bytes);
}

API CUresult cuMemcpyAtoH_v2(void *to, CUarray from, size_t offset, size_t bytes)
{
    return block_copy(row(on_host(to), in_array(from, offset), bytes));
}
ALSO(cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds);

API CUresult cuMemcpyAtoH(void *to, CUarray from, unsigned offset, unsigned bytes)
{
    return cuMemcpyAtoH_v2(to, from, offset, bytes);
}

API CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void *from, size_t bytes,
                                  CUstream stream)
{
    return block_copy_async(row(in_array(to, offset), on_host(from), bytes), stream);
}
ALSO(cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz);

API CUresult cuMemcpyHtoAAsync(CUarray to, unsigned offset, const void *from, unsigned bytes,
                               CUstream stream)
{
    return cuMemcpyHtoAAsync_v2(to, offset, from, bytes, stream);
}

API CUresult cuMemcpyAtoHAsync_v2(void *to, CUarray from, size_t offset, size_t bytes,
                                  CUstream stream)
{
    return block_copy_async(row(on_host(to), in_array(from, offset), bytes), stream);
}
ALSO(cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2_ptsz);

API CUresult cuMemcpyAtoHAsync(void *to, CUarray from, unsigned offset, unsigned bytes,
                               CUstream stream)
{
    return cuMemcpyAtoHAsync_v2(to, from, offset, bytes, stream);
}
