"""NVIDIA's own cuda-bindings, unmodified, on the simulated driver."""

from cuda.bindings import driver as cu

from tests.native.programs.graph_client import *
from tests.native.sim_box import SimBox

MACHINE = {"cuda_version": 12050}


def test_devices_are_described(box: SimBox) -> None:
    attribute = cu.CUdevice_attribute
    assert (done(cu.cuDeviceGetCount()), done(cu.cuDriverGetVersion())) == (2, 12050)
    assert done(cu.cuDeviceGetName(64, device)).rstrip(b"\0") == b"Tesla T4"
    uuid = box.uuid.removeprefix("GPU-").replace("-", "")
    assert done(cu.cuDeviceGetUuid(device)).bytes.hex() == uuid
    assert done(cu.cuDeviceTotalMem(device)) == 16 << 30
    processors = attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    assert done(cu.cuDeviceGetAttribute(processors, device)) == 40
    known = [one for one in attribute if 0 < int(one) <= 143]
    assert len(known) > 100
    assert all(int(cu.cuDeviceGetAttribute(one, device)[0]) == 0 for one in known)


def test_it_allocates_until_refused_and_lives_on() -> None:
    answers = [cu.cuMemAlloc(1 << 30) for _ in range(17)]
    held = [done(answer) for answer in answers[:16]]
    assert refused(answers[16]) == "CUDA_ERROR_OUT_OF_MEMORY"
    cu.cuMemFree(held.pop())
    held.append(done(cu.cuMemAlloc(1 << 30)))
    target = bytearray(17)
    cu.cuMemcpyHtoD(held[-1], b"bytes of the host", 17)
    cu.cuMemcpyDtoH(target, held[-1], 17)
    assert bytes(target) == b"bytes of the host"
    assert done(cu.cuMemGetInfo())[0] == 0


def test_modules_launches_streams_and_events_work(box: SimBox) -> None:
    first, second = done(cu.cuEventCreate(0)), done(cu.cuEventCreate(0))
    run(20_000)
    done(cu.cuEventRecord(first, stream))
    run(30_000)
    done(cu.cuEventRecord(second, stream))
    sync()
    assert done(cu.cuStreamIsCapturing(stream)).name == "CU_STREAM_CAPTURE_STATUS_NONE"
    assert round(done(cu.cuEventElapsedTime(first, second))) == 30

    config = cu.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX = config.blockDimY = config.blockDimZ = 1
    config.hStream = stream
    library = done(cu.cuLibraryLoadData(b"code", [], [], 0, [], [], 0))
    anything = done(cu.cuLibraryGetKernel(library, b"anything"))
    done(cu.cuLaunchKernelEx(config, cu.CUfunction(int(anything)), 0, 0))
    cu.cuCtxSynchronize()
    assert (box.account().launches, box.account().busy_ns) == (3, 50_010_000)


def test_pools_allocate_at_once_and_count() -> None:
    def used() -> int:
        attribute = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
        return int(done(cu.cuMemPoolGetAttribute(pool, attribute)))

    pool = done(cu.cuDeviceGetMemPool(device))
    pointer = done(cu.cuMemAllocFromPoolAsync(MIB, pool, 0))
    assert used() == MIB
    done(cu.cuMemFreeAsync(pointer, 0))
    assert used() == 0
