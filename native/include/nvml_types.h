/* NVML's types, as far as our hooks and our simulated library touch them: a documented ABI. */
#ifndef NVML_TYPES_H
#define NVML_TYPES_H

#include <stddef.h>

typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_DEVICE_UUID_BUFFER_SIZE = 96,
};

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

/* `version` is set by the caller: size of the struct | number of its version << 24. */
typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned long long bar1Total, bar1Free, bar1Used;
} nvmlBAR1Memory_t;

/* Of the process lists without a suffix. */
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;

/* Of those with _v2 and _v3. Drivers 530 to 535.54 end it with eight bytes more. */
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_v2_t;

typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
    unsigned long long usedGpuCcProtectedMemory;
} nvmlProcessDetail_v1_t;

typedef struct {
    unsigned int version; /* as in nvmlMemory_v2_t */
    unsigned int mode;    /* 0 compute, 1 graphics, 2 MPS */
    unsigned int numProcArrayEntries;
    nvmlProcessDetail_v1_t *procArray;
} nvmlProcessDetailList_v1_t;

typedef struct {
    unsigned int pid;
    unsigned long long timeStamp;
    unsigned int smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

typedef struct {
    unsigned long long timeStamp;
    unsigned int pid;
    unsigned int smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil;
} nvmlProcessUtilizationInfo_v1_t;

typedef struct {
    unsigned int version; /* as in nvmlMemory_v2_t */
    unsigned int processSamplesCount;
    unsigned long long lastSeenTimeStamp;
    nvmlProcessUtilizationInfo_v1_t *procUtilArray;
} nvmlProcessesUtilizationInfo_v1_t;

typedef struct {
    unsigned int gpuUtilization, memoryUtilization;
    unsigned long long maxMemoryUsage, time, startTime;
    unsigned int isRunning, reserved[5];
} nvmlAccountingStats_t;

_Static_assert(sizeof(nvmlMemory_t) == 24, "as the driver has it");
_Static_assert(sizeof(nvmlMemory_v2_t) == 40, "as the driver has it");
_Static_assert(sizeof(nvmlBAR1Memory_t) == 24, "as the driver has it");
_Static_assert(sizeof(nvmlProcessInfo_v1_t) == 16, "as the driver has it");
_Static_assert(sizeof(nvmlProcessInfo_v2_t) == 24, "as the driver has it");
_Static_assert(sizeof(nvmlProcessDetail_v1_t) == 32, "as the driver has it");
_Static_assert(sizeof(nvmlProcessDetailList_v1_t) == 24, "as the driver has it");
_Static_assert(sizeof(nvmlProcessUtilizationSample_t) == 32, "as the driver has it");
_Static_assert(sizeof(nvmlProcessUtilizationInfo_v1_t) == 40, "as the driver has it");
_Static_assert(sizeof(nvmlProcessesUtilizationInfo_v1_t) == 24, "as the driver has it");
_Static_assert(sizeof(nvmlAccountingStats_t) == 56, "as the driver has it");

#endif
