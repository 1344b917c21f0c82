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
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
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

_Static_assert(sizeof(nvmlMemory_t) == 24, "as the driver has it");
_Static_assert(sizeof(nvmlMemory_v2_t) == 40, "as the driver has it");

#endif
