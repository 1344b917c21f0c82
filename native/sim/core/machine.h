/* What a simulated machine is, and what an observer reads of it. Plain values, read by C and cffi.
 */
#ifndef SIM_CORE_MACHINE_H
#define SIM_CORE_MACHINE_H

#ifndef VCUDA_CDEF
#include <stdint.h>
#endif

enum {
    SIM_GPUS = 16,
    SIM_PROCESSES = 1024,
    SIM_TENANTS = 256,
    SIM_NAME_SIZE = 96,
    SIM_SAMPLES = 8, /* periods of utilisation that are remembered */
    SIM_RING = 72,   /* samples that name one process, as RM's ring has them: twelve seconds */
    SIM_QUEUE_DEPTH = 1024, /* launches a process can have queued on a GPU, as on a real one */
    SIM_NOWHERE = -1,       /* numa_node: the machine does not say */
};

struct sim_gpu {
    char name[SIM_NAME_SIZE];
    uint8_t uuid[16];
    uint64_t memory_bytes;   /* of the card */
    uint64_t context_bytes;  /* what a process's first context takes; 0: code is free too */
    uint64_t reserved_bytes; /* of memory_bytes: what the driver keeps from everybody */
    uint32_t pci_domain;
    uint32_t pci_bus;
    uint32_t pci_device;
    uint32_t minor; /* N of /dev/nvidia<N> */
    int32_t numa_node;
    uint32_t sm_count;
    uint32_t threads_per_sm;
    uint32_t capability_major;
    uint32_t capability_minor;
    uint32_t copy_latency_ns;  /* of a copy between host and device; 0: SIM_COPY_LATENCY_NS */
    uint64_t link_bandwidth;   /* to the host, bytes a second each way; 0: SIM_LINK_BANDWIDTH */
    uint64_t memory_bandwidth; /* of the device's own, read plus written; 0: SIM_MEMORY_BANDWIDTH */
};

/* What a GPU has that says nothing of it: of a PCIe 3.0 card's order. */
#define SIM_COPY_LATENCY_NS 2000
#define SIM_LINK_BANDWIDTH 12000000000
#define SIM_MEMORY_BANDWIDTH 500000000000
#define SIM_SLICE_NS 2000000

/* What NVML tells of processes' utilisation. */
enum {
    SIM_SAMPLES_EVERY_PROCESS = 0, /* each process's part of each sample period */
    SIM_SAMPLES_ONE_PROCESS = 1,   /* a sample names the one process that had the engine then */
    SIM_SAMPLES_NONE = 2,          /* not supported, as in MIG mode */
};

/* How the driver behaves where real ones are less kind than an ideal one. All 0: ideal. What each
 * is for, and where it is known from: gpumanager/sim/machine.py (DriverBehaviour).
 *
 * slice_ns: for how long a process has a GPU that others want too; 0: SIM_SLICE_NS. switch_ns: GPU
 * time lost whenever another process gets the GPU. event_floor_ns: what a pair of timing events
 * shows around nothing. event_idle_ns: the same, more, where the stream was idle at the first.
 * With either, events are stamped in steps of half a microsecond, as cuEventElapsedTime documents.
 * page_bytes: larger allocations than slab_most_bytes take whole pages, smaller ones share pages
 * ("slabs"); 0: bytes as asked. queue_depth: launches that can wait in a process's queue, at most
 * SIM_QUEUE_DEPTH; 0: that many. samples: SIM_SAMPLES_*. hides_managed: NVML's figure of a process
 * lacks managed memory. counts_imports: it contains memory that another process made and this one
 * opened. local_memory: it grows at launch, for stacks of all resident threads. hmm: kernels reach
 * pageable memory of the host. hides_memory: NVML has no memory figure of a GPU. */
struct sim_driver {
    uint64_t slice_ns;
    uint64_t switch_ns;
    uint64_t event_floor_ns;
    uint64_t event_idle_ns;
    uint64_t page_bytes;
    uint64_t slab_most_bytes;
    uint32_t queue_depth;
    uint32_t samples;
    uint32_t hides_managed;
    uint32_t counts_imports;
    uint32_t local_memory;
    uint32_t hmm;
    uint32_t hides_memory;
    uint32_t reserved;
};

/* GPUs by index. level: as nvmlGpuTopologyLevel_t (10 one switch … 50 across sockets). */
struct sim_machine {
    uint32_t gpu_count;
    int32_t cuda_version;
    struct sim_driver driver;
    char driver_version[SIM_NAME_SIZE];
    struct sim_gpu gpus[SIM_GPUS];
    uint8_t level[SIM_GPUS][SIM_GPUS];
    uint8_t nvlinks[SIM_GPUS][SIM_GPUS];
};

/* One tenant on one GPU. Times are nanoseconds of CLOCK_MONOTONIC; 0: never.
 * busy_ns: GPU time received, in which it had the GPU and something ran. sm_ns: the same, times the
 * SMs that worked. first_work_ns, last_end_ns: of kernels, fills and copies within the device.
 * launches: of kernels. refused: allocations beyond the physical memory. */
struct sim_usage {
    uint64_t bytes;
    uint64_t peak_bytes;
    uint64_t refused;
    uint64_t busy_ns;
    uint64_t first_work_ns;
    uint64_t last_end_ns;
    uint64_t launches;
    uint64_t sm_ns;
};

/* A tenant is a mount namespace: on a node, a container. The kernel gives the inode of a namespace
 * that is gone to the next one; identity is its number that is never used again (Linux 6.11;
 * before, a hash of the mount of its root). serial: tenants in the order of their arrival, from 1.
 */
struct sim_tenant {
    uint64_t mount_namespace; /* inode */
    uint64_t identity;
    uint64_t serial;
    struct sim_usage gpus[SIM_GPUS];
};

/* One process on one GPU. pid: as the reader has it, 0 where it has none. bytes: what it holds;
 * told_bytes: what NVML says of that. */
struct sim_occupant {
    int32_t pid;
    uint32_t gpu;
    uint64_t mount_namespace;
    uint64_t bytes;
    uint64_t told_bytes;
    uint64_t allocations;
    uint64_t busy_ns;
    uint64_t sm_ns;
    uint32_t contexts;
    uint32_t reserved;
};

/* What NVML tells of one process's utilisation of a GPU. sample_ns: the end of the latest sample
 * period that it is told of. */
struct sim_utilization {
    int32_t pid;
    uint32_t percent;
    uint64_t sample_ns;
};

#endif
