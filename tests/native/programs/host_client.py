"""The client's side of tests of functions that streams call: plain ctypes, a note of every call."""

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from tests.native.programs.virtual_client import cuda

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)

notes: list[Any] = []
kept: list[Any] = []
"""What the driver has the addresses of."""


def stream(flags: int = 1) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    assert cuda.cuStreamCreate(ctypes.byref(made), flags) == 0
    return made


def function(call: Callable[[], object]) -> Any:
    """For the driver; what it answers is noted."""
    made = HOST_FUNCTION(lambda _data: notes.append(call()))
    kept.append(made)
    return made


def launch(where: ctypes.c_void_p | None, call: Callable[[], object]) -> int:
    return int(cuda.cuLaunchHostFunc(where, function(call), None))


def add_callback(where: ctypes.c_void_p | None, data: int = 0, flags: int = 0) -> int:
    """What it is called with is noted."""
    made = CALLBACK(lambda *arguments: notes.append([one or 0 for one in arguments]))
    kept.append(made)
    return int(cuda.cuStreamAddCallback(where, made, ctypes.c_void_p(data), flags))


def spin(where: ctypes.c_void_p | None, nanoseconds: int) -> int:
    module, found = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuModuleLoadData(ctypes.byref(module), b"any image") == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(found), module, b"spin") == 0
    length = ctypes.c_uint64(nanoseconds)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
    return int(cuda.cuLaunchKernel(found, *[1] * 6, 0, where, parameters, None))


def event(where: ctypes.c_void_p | None) -> ctypes.c_void_p:
    """One that is recorded there now."""
    made = ctypes.c_void_p()
    assert cuda.cuEventCreate(ctypes.byref(made), 0) == 0
    assert cuda.cuEventRecord(made, where) == 0
    return made


def managed(size: int) -> Any:
    """Bytes that both sides reach."""
    address = ctypes.c_uint64()
    assert cuda.cuMemAllocManaged(ctypes.byref(address), ctypes.c_size_t(size), 1) == 0
    return (ctypes.c_ubyte * size).from_address(address.value)


def fill(what: Any, value: int, where: ctypes.c_void_p | None) -> int:
    address = ctypes.c_uint64(ctypes.addressof(what))
    return int(cuda.cuMemsetD8Async(address, value, ctypes.c_size_t(len(what)), where))


def captured(where: ctypes.c_void_p) -> list[Any]:
    """The end of the stream's capture: the code, and what can be launched."""
    graph, made = ctypes.c_void_p(), ctypes.c_void_p()
    code = cuda.cuStreamEndCapture(where, ctypes.byref(graph))
    if code == 0:
        assert cuda.cuGraphInstantiateWithFlags(ctypes.byref(made), graph, ctypes.c_uint64(0)) == 0
    return [code, made]


gate = threading.Event()
"""For functions that wait for the program."""
