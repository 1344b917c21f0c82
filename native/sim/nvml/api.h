/* The part of NVML that the simulated one has, as the interface is documented. Our declarations. */
#ifndef SIM_NVML_API_H
#define SIM_NVML_API_H

#include <stdint.h>

#define API __attribute__((visibility("default")))
#define ALSO(function, name) extern API __typeof__(function) name __attribute__((alias(#function)))

typedef struct device *nvmlDevice_t;

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
} nvmlReturn_t;

typedef struct {
    char busIdLegacy[16];
    unsigned domain;
    unsigned bus;
    unsigned device;
    unsigned pciDeviceId;
    unsigned pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
} nvmlMemory_t;

typedef struct {
    unsigned version;
    unsigned long long total;
    unsigned long long reserved;
    unsigned long long free;
    unsigned long long used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned gpu;
    unsigned memory;
} nvmlUtilization_t;

typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType;
    unsigned long long eventData;
    unsigned gpuInstanceId;
    unsigned computeInstanceId;
} nvmlEventData_t;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId;
    unsigned computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
    unsigned pid;
    unsigned long long timeStamp;
    unsigned smUtil;
    unsigned memUtil;
    unsigned encUtil;
    unsigned decUtil;
} nvmlProcessUtilizationSample_t;

typedef struct {
    unsigned long long bar1Total;
    unsigned long long bar1Free;
    unsigned long long bar1Used;
} nvmlBAR1Memory_t;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId;
    unsigned computeInstanceId;
    unsigned long long usedGpuCcProtectedMemory;
} nvmlProcessDetail_v1_t;

typedef struct {
    unsigned version;
    unsigned mode;
    unsigned numProcArrayEntries;
    nvmlProcessDetail_v1_t *procArray;
} nvmlProcessDetailList_v1_t;

typedef struct {
    unsigned long long timeStamp;
    unsigned pid;
    unsigned smUtil;
    unsigned memUtil;
    unsigned encUtil;
    unsigned decUtil;
    unsigned jpgUtil;
    unsigned ofaUtil;
} nvmlProcessUtilizationInfo_v1_t;

typedef struct {
    unsigned version;
    unsigned processSamplesCount;
    unsigned long long lastSeenTimeStamp;
    nvmlProcessUtilizationInfo_v1_t *procUtilArray;
} nvmlProcessesUtilizationInfo_v1_t;

/* value: a union of numbers, of which samples are unsigned ints. */
typedef struct {
    unsigned long long timeStamp;
    unsigned value;
    unsigned rest;
} nvmlSample_t;

_Static_assert(sizeof(nvmlSample_t) == 16, "documented layout");
_Static_assert(sizeof(nvmlPciInfo_t) == 68, "documented layout");
_Static_assert(sizeof(nvmlEventData_t) == 32, "documented layout");
_Static_assert(sizeof(nvmlMemory_v2_t) == 40, "documented layout");
_Static_assert(sizeof(nvmlProcessInfo_t) == 24, "documented layout");
_Static_assert(sizeof(nvmlProcessUtilizationSample_t) == 32, "documented layout");
_Static_assert(sizeof(nvmlProcessDetail_v1_t) == 32, "documented layout");
_Static_assert(sizeof(nvmlProcessDetailList_v1_t) == 24, "documented layout");
_Static_assert(sizeof(nvmlProcessUtilizationInfo_v1_t) == 40, "documented layout");
_Static_assert(sizeof(nvmlProcessesUtilizationInfo_v1_t) == 24, "documented layout");

#endif
