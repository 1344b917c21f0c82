"""NVIDIA's own cuda-bindings, unmodified, on the simulated driver."""

from tests.native.sim_box import SimBox

PRELUDE = """
import ctypes
from cuda.bindings import driver as cu

def done(answer):
    assert answer[0] == cu.CUresult.CUDA_SUCCESS, answer
    return answer[1] if len(answer) == 2 else answer[1:]

done(cu.cuInit(0))
device = done(cu.cuDeviceGet(0))
context = done(cu.cuDevicePrimaryCtxRetain(device))
done(cu.cuCtxSetCurrent(context))
"""


def test_devices_are_described(box: SimBox) -> None:
    out = box.python(
        PRELUDE
        + """
attribute = cu.CUdevice_attribute
print(done(cu.cuDeviceGetCount()), done(cu.cuDriverGetVersion()))
print(done(cu.cuDeviceGetName(64, device)).rstrip(b"\\0").decode())
print(done(cu.cuDeviceGetUuid(device)).bytes.hex())
print(done(cu.cuDeviceTotalMem(device)) >> 30)
print(done(cu.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)))
known = [a for a in attribute if 0 < int(a) <= 143]
assert len(known) > 100
print(all(cu.cuDeviceGetAttribute(a, device)[0] == cu.CUresult.CUDA_SUCCESS for a in known))
"""
    )

    uuid = box.uuid.removeprefix("GPU-").replace("-", "")
    assert out.split("\n") == ["2 12050", "Tesla T4", uuid, "16", "40", "True", ""]


def test_it_allocates_until_refused_and_lives_on(box: SimBox) -> None:
    out = box.python(
        PRELUDE
        + """
held = []
while True:
    code, pointer = cu.cuMemAlloc(1 << 30)
    if code != cu.CUresult.CUDA_SUCCESS:
        break
    held.append(pointer)
print(len(held), code.name)
done(cu.cuMemFree(held.pop()))
held.append(done(cu.cuMemAlloc(1 << 30)))
source, target = b"bytes of the host", bytearray(17)
done(cu.cuMemcpyHtoD(held[-1], source, 17))
done(cu.cuMemcpyDtoH(target, held[-1], 17))
print(target.decode(), done(cu.cuMemGetInfo())[0])
"""
    )

    assert out == "16 CUDA_ERROR_OUT_OF_MEMORY\nbytes of the host 0\n"


def test_modules_launches_streams_and_events_work(box: SimBox) -> None:
    out = box.python(
        PRELUDE
        + """
module = done(cu.cuModuleLoadData(b".version 7.0 .target sm_70"))
spin = done(cu.cuModuleGetFunction(module, b"spin"))
stream = done(cu.cuStreamCreate(0))
first, second = done(cu.cuEventCreate(0)), done(cu.cuEventCreate(0))
def launch(milliseconds):
    parameters = ((milliseconds * 1_000_000,), (ctypes.c_uint64,))
    done(cu.cuLaunchKernel(spin, 1, 1, 1, 64, 1, 1, 0, stream, parameters, 0))
launch(20)
done(cu.cuEventRecord(first, stream))
launch(30)
done(cu.cuEventRecord(second, stream))
done(cu.cuStreamSynchronize(stream))
print(done(cu.cuStreamIsCapturing(stream)).name, round(done(cu.cuEventElapsedTime(first, second))))

config = cu.CUlaunchConfig()
config.gridDimX = config.gridDimY = config.gridDimZ = 1
config.blockDimX = config.blockDimY = config.blockDimZ = 1
config.hStream = stream
library = done(cu.cuLibraryLoadData(b"code", [], [], 0, [], [], 0))
kernel = done(cu.cuLibraryGetKernel(library, b"anything"))
done(cu.cuLaunchKernelEx(config, cu.CUfunction(int(kernel)), 0, 0))
done(cu.cuCtxSynchronize())
"""
    )

    assert out == "CU_STREAM_CAPTURE_STATUS_NONE 30\n"
    account = box.gpus.tenants()[0].devices[box.uuid]
    assert (account.launches, account.busy_ns) == (3, 50_010_000)


def test_pools_allocate_at_once_and_count(box: SimBox) -> None:
    out = box.python(
        PRELUDE
        + """
pool = done(cu.cuDeviceGetMemPool(device))
used = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
pointer = done(cu.cuMemAllocFromPoolAsync(1 << 20, pool, 0))
print(int(done(cu.cuMemPoolGetAttribute(pool, used))))
done(cu.cuMemFreeAsync(pointer, 0))
print(int(done(cu.cuMemPoolGetAttribute(pool, used))))
"""
    )

    assert out == "1048576\n0\n"
