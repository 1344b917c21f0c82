#include "cuda/stream/memory.h"
#include "cuda/capture/capture.h"
#include "cuda/stream/host_call.h"

static CUresult run(struct driver *driver, struct stream *stream, int device,
                    const struct memory_operation *operation)
{
    struct pending wanted = {.operation = *operation,
                             .device = device,
                             .lane = stream != NULL ? stream->lane : SIM_LEGACY_LANE};
    struct sim_task task = {.kind = SIM_MARKER};
    if (memory_is_write(operation))
        host_calls_wait(driver, stream, device);
    bool done = operation->kind == BARRIER || memory_operation_done_now(driver, &wanted);
    if (!done && memory_is_wait(operation))
        task.kind = SIM_GATE;
    wanted.position = queue_submit(driver, stream, device, task, NULL).end - 1;
    return done ? CUDA_SUCCESS : memory_operation_append(driver, &wanted);
}

CUresult stream_memory_run(struct driver *driver, struct stream *stream, int device,
                           const struct memory_batch *batch)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < batch->count && result == CUDA_SUCCESS; i++)
        result = run(driver, stream, device, &batch->operations[i]);
    stream_memory_look(driver, device);
    return result;
}

API CUresult cuStreamBatchMemOp_v2(CUstream handle, unsigned count,
                                   struct memory_operation *operations, unsigned flags)
{
    struct driver *driver;
    struct stream *stream;
    int device;
    struct memory_batch batch = {.count = count, .operations = operations, .flags = flags};
    CUresult result = queue_find(handle, &driver, &stream, &device);
    if (result == CUDA_SUCCESS)
        result = stream_memory_check(driver, &batch);
    if (result != CUDA_SUCCESS)
        return result;
    if (!capture_has(stream))
        return stream_memory_run(driver, stream, device, &batch);
    struct node node = {.type = NODE_MEMORY};
    result = stream_memory_copy(&batch, &node.memory);
    return result == CUDA_SUCCESS ? capture_node(driver, stream, &node) : result;
}
ALSO(cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz);

static CUresult one(CUstream stream, int kind, CUdeviceptr address, uint64_t value, unsigned flags)
{
    struct memory_operation operation = {
        .kind = kind, .address = address, .value = value, .flags = flags};
    return cuStreamBatchMemOp_v2(stream, 1, &operation, 0);
}

API CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value,
                                    unsigned flags)
{
    return one(stream, WAIT_32, address, value, flags);
}
ALSO(cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz);

API CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, uint64_t value,
                                    unsigned flags)
{
    return one(stream, WAIT_64, address, value, flags);
}
ALSO(cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz);

API CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value,
                                     unsigned flags)
{
    return one(stream, WRITE_32, address, value, flags);
}
ALSO(cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz);

API CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, uint64_t value,
                                     unsigned flags)
{
    return one(stream, WRITE_64, address, value, flags);
}
ALSO(cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz);
