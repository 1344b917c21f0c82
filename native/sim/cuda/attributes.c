#include "cuda/memory/location.h"

enum { FIRST_ATTRIBUTE = 1, LAST_BEFORE_13 = 143, LAST_ATTRIBUTE = 161 };

/* Device attributes by number that are not 0 and the same for every model: limits of the recent
 * architectures, and features. */
static const int constants[LAST_ATTRIBUTE + 1] = {
    [1] = 1024,                                       /* threads per block */
    [2] = 1024,                                       /* block, x, y, z */
    [3] = 1024,        [4] = 64,    [5] = 2147483647, /* grid, x, y, z */
    [6] = 65535,       [7] = 65535, [8] = 49152,      /* shared memory per block */
    [9] = 65536,                                      /* constant memory */
    [10] = 32,                                        /* warp size */
    [11] = 2147483647,                                /* pitch */
    [12] = 65536,                                     /* registers per block */
    [13] = 1410000,                                   /* clock, kHz */
    [14] = 512,                                       /* texture alignment */
    [15] = 1,                                         /* copies overlap with kernels */
    [19] = 1,                                         /* can map host memory */
    [21] = 131072,                                    /* texture, 1-D */
    [22] = 131072,                                    /* 2-D, width */
    [23] = 65536,                                     /* height */
    [24] = 16384,                                     /* 3-D, width */
    [25] = 16384,                                     /* height */
    [26] = 16384,                                     /* depth */
    [27] = 32768,                                     /* 2-D layered, width */
    [28] = 32768,                                     /* height */
    [29] = 2048,                                      /* layers */
    [30] = 512,                                       /* surface alignment */
    [31] = 1,                                         /* concurrent kernels */
    [36] = 1215000,                                   /* memory clock, kHz */
    [37] = 5120,                                      /* memory bus, bits */
    [38] = 41943040,                                  /* L2 cache */
    [40] = 3,                                         /* copy engines */
    [41] = 1,                                         /* unified addressing */
    [42] = 32768,                                     /* 1-D layered, width */
    [43] = 2048,                                      /* layers */
    [45] = 131072,                                    /* gather, width */
    [46] = 65536,                                     /* height */
    [51] = 32,                                        /* texture pitch alignment */
    [52] = 32768,                                     /* cubemap, width */
    [53] = 32768,                                     /* layered cubemap, width */
    [54] = 2046,                                      /* layers */
    [69] = 1 << 27,                                   /* texture, 1-D of memory */
    [70] = 131072,                                    /* 2-D of memory, width */
    [71] = 65000,                                     /* height */
    [72] = 2097120,                                   /* pitch */
    [73] = 131072,                                    /* 2-D mipmapped, width */
    [74] = 65536,                                     /* height */
    [77] = 131072,                                    /* 1-D mipmapped, width */
    [78] = 1,                                         /* stream priorities */
    [79] = 1,                                         /* global L1 cache */
    [80] = 1,                                         /* local L1 cache */
    [81] = 102400,                                    /* shared memory per multiprocessor */
    [82] = 65536,                                     /* registers per multiprocessor */
    [83] = 1,                                         /* managed memory */
    [89] = 1,                                         /* managed memory, concurrently */
    [91] = 1,                                         /* same addresses of registered memory */
    [95] = 1,                                         /* cooperative launch */
    [97] = 101376,                                    /* shared memory per block, opted in */
    [99] = 1,                                         /* host memory is registered */
    [102] = 1,                                        /* virtual memory management */
    [103] = 1,                                        /* memory shared by file descriptor */
    [106] = 32,                                       /* blocks per multiprocessor */
    [112] = 1,                                        /* sparse arrays */
    [115] = 1,                                        /* memory pools */
    [119] = 1,                                        /* pools are shared by file descriptor */
    [121] = 1,                                        /* arrays mapped later */
    [122] = 1,                                        /* memory operations of 64 bit */
    [123] = 1,                                        /* and the fourth condition */
    [125] = 1,                                        /* events of other processes */
    [141] = 1,                                        /* physical memory of a NUMA node */
    [142] = 1,                                        /* pools of a NUMA node */
    [144] = 1,                                        /* pools of the host */
    [145] = 1,                                        /* physical memory of the host */
};

/* Those that depend on the GPU; false for any other. */
static bool of_gpu(const struct sim_gpu *gpu, int attribute, int *value)
{
    switch (attribute) {
    case 16:
        *value = (int)gpu->sm_count;
        return true;
    case 33:
        *value = (int)gpu->pci_bus;
        return true;
    case 34:
        *value = (int)gpu->pci_device;
        return true;
    case 39:
        *value = (int)gpu->threads_per_sm;
        return true;
    case 50:
        *value = (int)gpu->pci_domain;
        return true;
    case 75:
        *value = (int)gpu->capability_major;
        return true;
    case 76:
        *value = (int)gpu->capability_minor;
        return true;
    case 89:
        *value = concurrent_managed(gpu);
        return true;
    case 149:
        *value = (int)location_domains(gpu);
        return true;
    case 157: /* of one locality domain */
        *value = (int)(gpu->sm_count / location_domains(gpu));
        return true;
    case 132: /* multicast objects: since Hopper */
        *value = gpu->capability_major >= 9;
        return true;
    case 134:
        *value = gpu->numa_node;
        return true;
    default:
        return false;
    }
}

API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    struct driver *driver;
    const struct sim_gpu *gpu;
    CUresult result = driver_device(device, &driver, &gpu);
    if (result != CUDA_SUCCESS)
        return result;
    int last = driver_knows(driver, CUDA_13_0) ? LAST_ATTRIBUTE : LAST_BEFORE_13;
    if (value == NULL || attribute < FIRST_ATTRIBUTE || attribute > last)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == 88) /* pageable memory access */
        *value = driver->state->machine.driver.hmm != 0;
    else if (!of_gpu(gpu, attribute, value))
        *value = constants[attribute];
    return CUDA_SUCCESS;
}
