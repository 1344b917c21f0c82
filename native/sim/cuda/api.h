/* The part of the CUDA driver API that the simulated driver has: its types and result codes, as the
 * interface is documented. Our own declarations; handles are pointers to our objects. */
#ifndef SIM_CUDA_API_H
#define SIM_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

/* An export; and a second export of it under another name of the same binary interface. No two
 * share an address, as in the real library: cuGetProcAddress answers with addresses. */
#define API __attribute__((visibility("default")))
#if defined(__x86_64__)
#define JUMP(function) "jmp " #function "@PLT"
#else
#define JUMP(function) "b " #function
#endif
#define ALSO(function, name)                                                                       \
    extern API __typeof__(function) name;                                                          \
    __asm__(".pushsection .text\n.balign 16\n.globl " #name "\n.type " #name ", %function\n" #name \
            ": " JUMP(function) "\n.size " #name ", .-" #name "\n.popsection")

typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct context *CUcontext;
typedef struct module *CUmodule;
typedef struct module *CUlibrary;
typedef struct function *CUfunction;
typedef struct function *CUkernel;
typedef struct stream *CUstream;
typedef struct event *CUevent;
typedef struct pool *CUmemoryPool;
typedef uint64_t CUmemGenericAllocationHandle;
typedef struct array *CUarray;
typedef struct array *CUmipmappedArray;

typedef struct {
    unsigned char bytes[16];
} CUuuid;

/* Where memory is; of a device: its ordinal. */
typedef struct {
    int type;
    int id;
} CUmemLocation;

typedef struct {
    CUmemLocation location;
    int flags;
} CUmemAccessDesc;

typedef struct {
    int allocType;
    int handleTypes;
    CUmemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;

typedef struct {
    unsigned char reserved[64];
} CUmemPoolPtrExportData;

_Static_assert(sizeof(CUmemPoolProps) == 88, "as the driver has it");

typedef enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_DEINITIALIZED = 4,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY = 224,
    CUDA_ERROR_FILE_NOT_FOUND = 301,
    CUDA_ERROR_MAP_FAILED = 205,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE = 708,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
    CUDA_ERROR_NOT_PERMITTED = 800,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_UNKNOWN = 999,
} CUresult;

typedef struct {
    unsigned gridDimX, gridDimY, gridDimZ;
    unsigned blockDimX, blockDimY, blockDimZ;
    unsigned sharedMemBytes;
    CUstream hStream;
    void *attrs;
    unsigned numAttrs;
} CUlaunchConfig;

typedef struct {
    void *affinities;
    int count;
    void *graphics; /* for contexts that share with a graphics API */
} CUctxCreateParams;

typedef struct {
    int type;
    int requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    unsigned char allocFlags[8];
} CUmemAllocationProp;

typedef struct {
    unsigned numDevices;
    size_t size;
    unsigned long long handleTypes;
    unsigned long long flags;
} CUmulticastObjectProp;

typedef struct {
    char reserved[64];
} CUipcMemHandle;

typedef struct {
    char reserved[64];
} CUipcEventHandle;

#endif
