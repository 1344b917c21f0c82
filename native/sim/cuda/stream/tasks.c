#include "cuda/stream/tasks.h"

#define SHORTEST_MEMORY_NS 1000 /* a kernel that does next to nothing takes about that */

enum { BLOCKS_PER_SM = 32 };

static const struct sim_gpu *gpu_of(const struct driver *driver, int device)
{
    return &driver->state->machine.gpus[driver->gpus[device]];
}

static uint64_t at_least_1(uint64_t number)
{
    return number > 0 ? number : 1;
}

static uint64_t blocks_per_sm(const struct sim_gpu *gpu, uint64_t threads)
{
    uint64_t fitting = gpu->threads_per_sm / at_least_1(threads);
    return at_least_1(fitting < BLOCKS_PER_SM ? fitting : BLOCKS_PER_SM);
}

/* At most 2^31 * 2^16 * 2^16 blocks, as launch_check() knows. */
static uint32_t demand(const struct sim_gpu *gpu, const CUlaunchConfig *shape)
{
    uint64_t threads = (uint64_t)shape->blockDimX * shape->blockDimY * shape->blockDimZ;
    uint64_t blocks = (uint64_t)shape->gridDimX * shape->gridDimY * shape->gridDimZ;
    uint64_t per_sm = blocks_per_sm(gpu, threads);
    uint64_t sms = blocks / per_sm + (blocks % per_sm != 0);
    return sms < gpu->sm_count ? (uint32_t)sms : gpu->sm_count;
}

struct sim_task task_kernel(const struct driver *driver, int device, const CUlaunchConfig *shape,
                            uint64_t duration_ns)
{
    return (struct sim_task){.kind = SIM_KERNEL,
                             .sms = demand(gpu_of(driver, device), shape),
                             .duration_ns = duration_ns};
}

static uint64_t moving(uint64_t bytes, uint64_t bandwidth, uint64_t standard)
{
    bandwidth = bandwidth != 0 ? bandwidth : standard;
    return (uint64_t)((unsigned __int128)bytes * 1000000000 / bandwidth);
}

struct sim_task task_memory(const struct driver *driver, int device, uint64_t bytes)
{
    const struct sim_gpu *gpu = gpu_of(driver, device);
    uint64_t duration = moving(bytes, gpu->memory_bandwidth, SIM_MEMORY_BANDWIDTH);
    return (struct sim_task){
        .kind = SIM_MEMORY, .sms = gpu->sm_count, .duration_ns = SHORTEST_MEMORY_NS + duration};
}

struct sim_task task_copy(const struct driver *driver, int device, enum sim_kind kind,
                          uint64_t bytes)
{
    const struct sim_gpu *gpu = gpu_of(driver, device);
    uint64_t latency = gpu->copy_latency_ns != 0 ? gpu->copy_latency_ns : SIM_COPY_LATENCY_NS;
    uint64_t duration = moving(bytes, gpu->link_bandwidth, SIM_LINK_BANDWIDTH);
    return (struct sim_task){.kind = kind, .duration_ns = latency + duration};
}
