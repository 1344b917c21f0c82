"""A program that builds graphs, through NVIDIA's own cuda-bindings: words for the tests' scripts.

Importing it makes a context on device 0, a stream and the kernel `spin`.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

from cuda.bindings import driver as cu

MIB = 1 << 20
INVALID = "CUDA_ERROR_INVALID_VALUE"
THREAD_LOCAL = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
ONE = [1] * 6


def done(answer: Any) -> Any:
    """What a call returned beside its success."""
    assert answer[0] == cu.CUresult.CUDA_SUCCESS, answer
    return answer[1] if len(answer) == 2 else answer[1:]


def refused(answer: Any) -> str:
    """The error of a call that must fail."""
    assert answer[0] != cu.CUresult.CUDA_SUCCESS
    return str(answer[0].name)


done(cu.cuInit(0))
device = done(cu.cuDeviceGet(0))
done(cu.cuCtxSetCurrent(done(cu.cuDevicePrimaryCtxRetain(device))))
spin = done(cu.cuModuleGetFunction(done(cu.cuModuleLoadData(b".version 7.0")), b"spin"))
stream = done(cu.cuStreamCreate(1))


def memory(name: str) -> int:
    """CU_GRAPH_MEM_ATTR_<name> of the device."""
    attribute = getattr(cu.CUgraphMem_attribute, f"CU_GRAPH_MEM_ATTR_{name}")
    return int(done(cu.cuDeviceGetGraphMemAttribute(device, attribute)))


def shape(microseconds: int) -> Any:
    """Parameters of a kernel node."""
    params = cu.CUDA_KERNEL_NODE_PARAMS()
    params.func = spin
    for side in ("gridDim", "blockDim"):
        for axis in "XYZ":
            setattr(params, side + axis, 1)
    params.kernelParams = ((microseconds * 1000,), (ctypes.c_uint64,))
    return params


def kernel(into: Any, after: Sequence[Any], microseconds: int) -> Any:
    return done(cu.cuGraphAddKernelNode(into, after, len(after), shape(microseconds)))


def alloc(into: Any, after: Sequence[Any], size: int, gpu: int = 0) -> tuple[Any, int]:
    """An allocation node and its address."""
    params = cu.CUDA_MEM_ALLOC_NODE_PARAMS()
    params.poolProps.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    params.poolProps.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    params.poolProps.location.id = gpu
    params.bytesize = size
    node = done(cu.cuGraphAddMemAllocNode(into, after, len(after), params))
    return node, int(done(cu.cuGraphMemAllocNodeGetParams(node)).dptr)


def free(into: Any, after: Sequence[Any], address: int) -> Any:
    return done(cu.cuGraphAddMemFreeNode(into, after, len(after), address))


def graph(*sizes: int, keep: bool = False) -> Any:
    """A graph that allocates these at once, runs a kernel, and frees them unless it keeps them."""
    made = done(cu.cuGraphCreate(0))
    pairs = [alloc(made, [], size) for size in sizes]
    if pairs:
        last = kernel(made, [node for node, _ in pairs], 1)
        for _, address in () if keep else pairs:
            free(made, [last], address)
    return made


def ready(made: Any, flags: int = 0) -> Any:
    return done(cu.cuGraphInstantiate(made, flags))


def launch(executable: Any) -> Any:
    return done(cu.cuGraphLaunch(executable, stream))


def capture(mode: Any = THREAD_LOCAL) -> None:
    done(cu.cuStreamBeginCapture(stream, mode))


def captured() -> Any:
    return done(cu.cuStreamEndCapture(stream))


def kinds(made: Any) -> list[str]:
    """The types of its nodes."""
    nodes = done(cu.cuGraphGetNodes(made, done(cu.cuGraphGetNodes(made))[1]))[0]
    types = [done(cu.cuGraphNodeGetType(node)).name for node in nodes]
    return [name.removeprefix("CU_GRAPH_NODE_TYPE_") for name in types]


def run(microseconds: int, where: Any = None) -> None:
    """Launch the kernel."""
    params = ((microseconds * 1000,), (ctypes.c_uint64,))
    done(cu.cuLaunchKernel(spin, *ONE, 0, where or stream, params, 0))


def sync() -> None:
    done(cu.cuStreamSynchronize(stream))
