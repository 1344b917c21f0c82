"""Run in a container: calls every hooked function in the order of the table, with what it asks for.

Arguments are chosen by type and name. What a call puts out under a type (an address, a context, a
pool) is what a later one gets that asks for this type, so that most calls succeed and frees free
what allocations made.
"""

import ctypes
import json
import re
import sys
from typing import Any

from tests.native.programs.shim_client import SPIN, begin, cuda, nvml

POINTED = re.compile(r"(?:const )?(.*?) ?\*$")
HANDLES = re.compile(r"CU\w+|nvmlDevice_t")
SCALARS = {
    "int": ctypes.c_int,
    "CUdevice": ctypes.c_int,
    "unsigned int": ctypes.c_uint,
    "size_t": ctypes.c_size_t,
    "unsigned long long": ctypes.c_uint64,
    "cuuint64_t": ctypes.c_uint64,
    "float": ctypes.c_float,
}
BY_NAME: dict[str, int] = {
    "bytes": 2 << 20,
    "size": 2 << 20,
    "width": 64,
    "height": 64,
    "element": 4,
    "version": 12050,
    "levels": 1,
    "elements": 4096,
    "pitch": 512,
    "type": 1,
}
BY_FUNCTION: dict[tuple[str, str], int] = {("cuMemAllocManaged", "flags"): 1}
RESERVED = {
    ("cuMemMap", "address"),
    ("cuMemUnmap", "address"),
    ("cuMulticastBindAddr", "address"),
    ("cuMulticastBindAddr_v2", "address"),
    ("cuMemRetainAllocationHandle", "address"),
}
"""Where an address is meant that was reserved, not one that was allocated."""
ONE = ("grid_", "block_")
ENDING = re.compile(r"\w*(Free|Destroy|Release|Unload|Close|Unmap)\w*")
FLOAT = 0x20
STRUCTS = {  # by what is pointed at: its first 32-bit words
    "nvmlMemory_v2_t": [2 << 24 | 40],
    "CUlaunchConfig": [1] * 6,
    "CUmemAllocationProp": [1, 1, 1, 0],
    "CUmulticastObjectProp": [1, 0, 2 << 20, 0],
    "CUmemPoolProps": [1, 0, 1, 0],
    "CUDA_ARRAY_DESCRIPTOR": [64, 0, 64, 0, FLOAT, 1],
    "CUDA_ARRAY_DESCRIPTOR_v1": [64, 64, FLOAT, 1],
    "CUDA_ARRAY3D_DESCRIPTOR": [64, 0, 64, 0, 0, 0, FLOAT, 1],
    "CUDA_ARRAY3D_DESCRIPTOR_v1": [64, 64, 0, FLOAT, 1],
}
NULLS = {("void **", "extra"), ("void *", "affinities"), ("void *", "parameters")}
TEXTS = {"symbol": b"cuInit", "image": SPIN, "code": SPIN, "path": b"no such file"}


class Caller:
    """Remembers what was put out under each type; what a call ends is not used again."""

    def __init__(self, library: Any, **made: int) -> None:
        self._library = library
        self._made = {kind: [value] for kind, value in made.items()}
        self._kept: list[Any] = []

    def __call__(self, symbol: str, parameters: list[tuple[str, str]]) -> int:
        arguments = [self._argument(symbol, kind, name) for kind, name in parameters]
        result = int(getattr(self._library, symbol)(*arguments))
        if result == 0:
            self._remember(parameters, arguments)
        return result

    def _argument(self, symbol: str, kind: str, name: str) -> Any:
        if (symbol, name) in RESERVED:
            return ctypes.c_uint64(self._made["reserved"][0])
        if POINTED.fullmatch(kind):
            return self._buffer(kind, name)
        if HANDLES.fullmatch(kind) and kind not in ("CUdevice", "CUstream"):
            value = self._handle(symbol, kind)
            return ctypes.c_uint(value) if kind == "CUdeviceptr_v1" else ctypes.c_uint64(value)
        if name.startswith(ONE):
            return ctypes.c_uint(1)
        number = BY_FUNCTION.get((symbol, name), BY_NAME.get(name, 0))
        return SCALARS.get(kind, ctypes.c_uint64)(number)

    def _handle(self, symbol: str, kind: str) -> int:
        made = self._made.get(kind, [])
        if not made:
            return 0
        return made.pop() if ENDING.fullmatch(symbol) else made[-1]

    def _buffer(self, kind: str, name: str) -> Any:
        if (kind, name) in NULLS:
            return None
        buffer = ctypes.create_string_buffer(TEXTS.get(name, b""), 8192)
        self._kept.append(buffer)
        if name == "parameters":
            ctypes.c_uint64.from_buffer(buffer).value = ctypes.addressof(buffer) + 4096
        words = STRUCTS.get(POINTED.sub(r"\1", kind), [])
        ctypes.memmove(buffer, (ctypes.c_uint * len(words))(*words), 4 * len(words))
        return buffer

    def _remember(self, parameters: list[tuple[str, str]], arguments: list[Any]) -> None:
        for (kind, _), argument in zip(parameters, arguments, strict=True):
            pointed = POINTED.fullmatch(kind)
            if pointed is not None and argument is not None and HANDLES.fullmatch(pointed[1]):
                value = ctypes.c_uint64.from_buffer(argument).value
                if value != 0:
                    self._made.setdefault(pointed[1], []).append(value)


def cuda_caller() -> Caller:
    driver = cuda()
    function = begin(driver)
    pool, context, graph, place = (ctypes.c_void_p() for _ in range(4))
    assert driver.cuDeviceGetDefaultMemPool(ctypes.byref(pool), 0) == 0
    assert driver.cuCtxGetCurrent(ctypes.byref(context)) == 0
    size, none = ctypes.c_size_t(2 << 20), ctypes.c_uint64(0)
    assert driver.cuMemAddressReserve(ctypes.byref(place), size, none, none, none) == 0
    driver.cuGraphCreate(ctypes.byref(graph), 0)
    found = {
        "CUfunction": function,
        "CUmemoryPool": pool,
        "CUcontext": context,
        "CUgraph": graph,
        "reserved": place,
    }
    return Caller(driver, **{kind: handle.value or 0 for kind, handle in found.items()})


def nvml_caller() -> Caller:
    library, device = nvml(), ctypes.c_void_p()
    assert library.nvmlInit_v2() == 0
    assert library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
    return Caller(library, nvmlDevice_t=device.value or 0)


def call_all(rows: list[tuple[str, list[tuple[str, str]]]], library: str) -> None:
    """Tell each result as it comes: the last line says where a program died."""
    caller = cuda_caller() if library == "cuda" else nvml_caller()
    for symbol, parameters in rows:
        sys.stdout.write(json.dumps({symbol: caller(symbol, parameters)}) + "\n")
        sys.stdout.flush()
