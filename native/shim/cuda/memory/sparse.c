/* Sparse arrays: tiles of them are backed by physical memory, which their mappings keep.
 *
 * Tiles are mapped and unmapped in any shapes, and an array takes all its mappings with it: what
 * was once mapped into one stays charged for as long as the process lives.
 */
#include "cuda/memory/virtual.h"

#include <stdlib.h>

/* References to what the list maps, the caller's and in its memory; NULL without memory. */
static struct physical **hold(struct process *process, const CUarrayMapInfo *list,
                              unsigned int count)
{
    struct physical **held = calloc(count, sizeof(struct physical *));
    for (unsigned int index = 0; held != NULL && index < count; index++)
        if (list[index].memOperationType == CU_MEM_OPERATION_TYPE_MAP)
            held[index] = physicals_hold(&process->physicals, list[index].memHandle.memHandle);
    return held;
}

static CUresult settle(struct process *process, CUresult result, struct physical **held,
                       unsigned int count)
{
    for (unsigned int index = 0; result != CUDA_SUCCESS && index < count; index++)
        virtual_drop(process, held[index]);
    free(held);
    return virtual_leave(process, result);
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
    struct process *process = list != NULL && count > 0 ? virtual_enter() : NULL;
    if (process == NULL)
        return REAL(cuMemMapArrayAsync)(list, count, stream);
    struct physical **held = hold(process, list, count);
    if (held == NULL)
        return virtual_leave(process, CUDA_ERROR_OUT_OF_MEMORY);
    return settle(process, REAL(cuMemMapArrayAsync)(list, count, stream), held, count);
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
    struct process *process = list != NULL && count > 0 ? virtual_enter() : NULL;
    if (process == NULL)
        return REAL(cuMemMapArrayAsync_ptsz)(list, count, stream);
    struct physical **held = hold(process, list, count);
    if (held == NULL)
        return virtual_leave(process, CUDA_ERROR_OUT_OF_MEMORY);
    return settle(process, REAL(cuMemMapArrayAsync_ptsz)(list, count, stream), held, count);
}
