"""The client's side of a shim test: the CUDA driver as a program in a container loads it.

Runs inside of the container, as plain ctypes on `libcuda.so.1` and `libnvidia-ml.so.1`.
"""

import ctypes
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_READY = 0, 1, 2, 802
LOOK = 0.005


def cuda() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def nvml() -> Any:
    return ctypes.CDLL("libnvidia-ml.so.1")


def address_of(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


def allocate(library: Any, size: int) -> tuple[int, int]:
    """The result of cuMemAlloc_v2, and the address."""
    address = ctypes.c_uint64()
    return library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)), address.value


def free(library: Any, address: int) -> int:
    return int(library.cuMemFree_v2(ctypes.c_uint64(address)))


def memory(library: Any) -> tuple[int, int]:
    """What cuMemGetInfo_v2 says: free, total."""
    left, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert library.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total)) == SUCCESS
    return left.value, total.value


def entry(library: Any, symbol: str, version: int, flags: int = 0) -> tuple[int, int | None, int]:
    """What cuGetProcAddress_v2 answers: result, pointer, status."""
    pointer, status = ctypes.c_void_p(), ctypes.c_int(-1)
    result = library.cuGetProcAddress_v2(
        symbol.encode(),
        ctypes.byref(pointer),
        version,
        ctypes.c_uint64(flags),
        ctypes.byref(status),
    )
    return result, pointer.value, status.value


def launch(library: Any, blocks: int = 1) -> int:
    function = ctypes.c_void_p(0x1000)
    shape = (blocks, 1, 1, 32, 1, 1, 0)
    return int(library.cuLaunchKernel(function, *shape, None, None, None))


def tell(**answers: object) -> None:
    """Hand answers to the test."""
    print(json.dumps(answers), flush=True)  # noqa: T201 - the way out of the container


SPIN = (
    b".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry spin(.param .u64 ns) { ret; }"
)


def begin(library: Any) -> Any:
    """A context on device 0, and the kernel `spin`, which takes its first parameter in ns."""
    context, module, function = (ctypes.c_void_p() for _ in range(3))
    assert library.cuInit(0) == SUCCESS
    assert library.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == SUCCESS
    assert library.cuModuleLoadData(ctypes.byref(module), SPIN) == SUCCESS
    assert library.cuModuleGetFunction(ctypes.byref(function), module, b"spin") == SUCCESS
    return function


def spin(library: Any, function: Any, nanoseconds: int, blocks: int = 1) -> None:
    length = ctypes.c_uint64(nanoseconds)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
    shape = (blocks, 1, 1, 32, 1, 1, 0)
    assert library.cuLaunchKernel(function, *shape, None, parameters, None) == SUCCESS


def spin_for(seconds: float, kernels: list[tuple[int, int]], *, synchronise: bool) -> None:
    """Launch kernels of these lengths and block counts in turn, for so long."""
    driver = cuda()
    function = begin(driver)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for length, blocks in kernels:
            spin(driver, function, length, blocks)
        if synchronise:
            assert driver.cuCtxSynchronize() == SUCCESS
    assert driver.cuCtxSynchronize() == SUCCESS


def reach(path: str) -> None:
    """Tell the test that this point is reached."""
    Path(path).touch()


def waits() -> int:
    """How often this thread has gone to sleep; a busy machine adds nothing to it."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def soon(true: Callable[[], bool], within: float = 1.0) -> bool:
    """Whether it comes true within so many seconds.

    They are counted in looks: on a busy machine, where we come to look less often, they last
    longer.
    """
    for _ in range(round(within / LOOK)):
        if true():
            return True
        time.sleep(LOOK)
    return true()


def wait_for(path: str, seconds: float = 240) -> None:
    """Wait until the test has made this file."""
    end = time.monotonic() + seconds
    while not Path(path).exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.005)
