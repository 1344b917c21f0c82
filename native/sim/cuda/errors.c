/* The names of all results and what they say, as the headers of CUDA 13.4 list them. */
#include "cuda/driver.h"

/* since: the first CUDA version that has it; 0: all that are simulated. */
struct error {
    int code;
    int since;
    const char *name;
    const char *text;
};

static const struct error errors[] = {
    {0, 0, "CUDA_SUCCESS", "no error"},
    {1, 0, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, 0, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, 0, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, 0, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {5, 0, "CUDA_ERROR_PROFILER_DISABLED", "profiler disabled while using external profiling tool"},
    {6, 0, "CUDA_ERROR_PROFILER_NOT_INITIALIZED",
     "profiler not initialized: call cudaProfilerInitialize()"},
    {7, 0, "CUDA_ERROR_PROFILER_ALREADY_STARTED", "profiler already started"},
    {8, 0, "CUDA_ERROR_PROFILER_ALREADY_STOPPED", "profiler already stopped"},
    {34, 0, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {36, 13000, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "CUDA call requires a newer driver"},
    {46, 0, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {47, 13040, "CUDA_ERROR_MULTICAST_RESOURCE_FULL", "multicast resources are exhausted"},
    {100, 0, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, 0, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {102, 0, "CUDA_ERROR_DEVICE_NOT_LICENSED", "device doesn't have valid Grid license"},
    {200, 0, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, 0, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {202, 0, "CUDA_ERROR_CONTEXT_ALREADY_CURRENT", "context already current"},
    {205, 0, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {206, 0, "CUDA_ERROR_UNMAP_FAILED", "unmapping of buffer object failed"},
    {207, 0, "CUDA_ERROR_ARRAY_IS_MAPPED", "array is mapped"},
    {208, 0, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped"},
    {209, 0, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {210, 0, "CUDA_ERROR_ALREADY_ACQUIRED", "resource already acquired"},
    {211, 0, "CUDA_ERROR_NOT_MAPPED", "resource not mapped"},
    {212, 0, "CUDA_ERROR_NOT_MAPPED_AS_ARRAY", "resource not mapped as array"},
    {213, 0, "CUDA_ERROR_NOT_MAPPED_AS_POINTER", "resource not mapped as pointer"},
    {214, 0, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {215, 0, "CUDA_ERROR_UNSUPPORTED_LIMIT", "limit is not supported on this architecture"},
    {216, 0, "CUDA_ERROR_CONTEXT_ALREADY_IN_USE",
     "exclusive-thread device already in use by a different thread"},
    {217, 0, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these two devices"},
    {218, 0, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {219, 0, "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", "invalid OpenGL or DirectX context"},
    {220, 0, "CUDA_ERROR_NVLINK_UNCORRECTABLE",
     "uncorrectable NVLink error detected during the execution"},
    {221, 0, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "PTX JIT compiler library not found"},
    {222, 0, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {223, 0, "CUDA_ERROR_JIT_COMPILATION_DISABLED", "PTX JIT compilation was disabled"},
    {224, 0, "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY",
     "the provided execution affinity is not supported"},
    {225, 0, "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC",
     "the provided PTX contains unsupported call to cudaDeviceSynchronize"},
    {226, 12080, "CUDA_ERROR_CONTAINED",
     "Invalid access of peer GPU memory over nvlink or a hardware error"},
    {227, 13040, "CUDA_ERROR_INSUFFICIENT_LOADER_VERSION", "the loader of the binary is too old"},
    {300, 0, "CUDA_ERROR_INVALID_SOURCE", "device kernel image is invalid"},
    {301, 0, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {302, 0, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "shared object symbol not found"},
    {303, 0, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "shared object initialization failed"},
    {304, 0, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {400, 0, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {401, 0, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {402, 0, "CUDA_ERROR_LOSSY_QUERY", "attempted introspection would be semantically lossy"},
    {500, 0, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, 0, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, 0, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, 0, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {702, 0, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {703, 0, "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", "launch uses incompatible texturing mode"},
    {704, 0, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {705, 0, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {708, 0, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE",
     "cannot set while device is active in this process"},
    {709, 0, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {710, 0, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {711, 0, "CUDA_ERROR_TOO_MANY_PEERS", "peer mapping resources exhausted"},
    {712, 0, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {713, 0, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {714, 0, "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error"},
    {715, 0, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {716, 0, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {717, 0, "CUDA_ERROR_INVALID_ADDRESS_SPACE",
     "operation not supported on global/shared address space"},
    {718, 0, "CUDA_ERROR_INVALID_PC", "invalid program counter"},
    {719, 0, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {720, 0, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {721, 12080, "CUDA_ERROR_TENSOR_MEMORY_LEAK",
     "tensor memory was not completely freed before exit"},
    {800, 0, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {801, 0, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {802, 0, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {803, 0, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {804, 0, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "forward compatibility was attempted on non supported HW"},
    {805, 0, "CUDA_ERROR_MPS_CONNECTION_FAILED",
     "MPS client failed to connect to the MPS control daemon or the MPS server"},
    {806, 0, "CUDA_ERROR_MPS_RPC_FAILURE",
     "the remote procedural call between the MPS server and the MPS client failed"},
    {807, 0, "CUDA_ERROR_MPS_SERVER_NOT_READY",
     "MPS server is not ready to accept new MPS client requests"},
    {808, 0, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
     "the hardware resources required to create MPS client have been exhausted"},
    {809, 0, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED",
     "the hardware resources required to device connections have been exhausted"},
    {810, 0, "CUDA_ERROR_MPS_CLIENT_TERMINATED",
     "the MPS client has been terminated by the server"},
    {811, 0, "CUDA_ERROR_CDP_NOT_SUPPORTED", "current device does not support CDP"},
    {812, 0, "CUDA_ERROR_CDP_VERSION_MISMATCH", "cdp version mismatch"},
    {900, 0, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {901, 0, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {902, 0, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {903, 0, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the same stream as it began"},
    {904, 0, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {905, 0, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {906, 0, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {907, 0, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {908, 0, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {909, 0, "CUDA_ERROR_TIMEOUT", "wait operation timed out"},
    {910, 0, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
     "the graph update was not performed because it included changes which violated constraints "
     "specific to instantiated graph update"},
    {911, 0, "CUDA_ERROR_EXTERNAL_DEVICE",
     "an async error has occured in external entity outside of CUDA"},
    {912, 0, "CUDA_ERROR_INVALID_CLUSTER_SIZE",
     "a kernel launch error has occurred due to cluster misconfiguration"},
    {913, 0, "CUDA_ERROR_FUNCTION_NOT_LOADED",
     "the function handle is not loaded when calling a function that requires a loaded function"},
    {914, 0, "CUDA_ERROR_INVALID_RESOURCE_TYPE",
     "one or more resources passed in are not valid resource types for the operation"},
    {915, 0, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION",
     "one or more resources are insufficient or non-applicable for the operation"},
    {916, 12080, "CUDA_ERROR_KEY_ROTATION", "an error happened during the key rotation sequence"},
    {917, 13010, "CUDA_ERROR_STREAM_DETACHED", "the stream is detached from its context"},
    {918, 13030, "CUDA_ERROR_GRAPH_RECAPTURE_FAILURE", "the graph could not be captured again"},
    {919, 13040, "CUDA_ERROR_FABRIC_NOT_READY", "the fabric is not ready"},
    {999, 0, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static const struct error *find(CUresult code)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == (int)code)
            return errors[i].since <= driver_cuda_version() ? &errors[i] : NULL;
    return NULL;
}

API CUresult cuGetErrorName(CUresult code, const char **name)
{
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct error *error = find(code);
    *name = error != NULL ? error->name : NULL;
    return error != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGetErrorString(CUresult code, const char **text)
{
    if (text == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct error *error = find(code);
    *text = error != NULL ? error->text : NULL;
    return error != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
