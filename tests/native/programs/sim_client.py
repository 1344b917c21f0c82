"""Run by sim_box.Client: evaluates one expression per line of stdin, answers in JSON. Or imported,
for its words.

Lines may come as arguments too, before those of stdin. What a function answers is a result code
unless it says otherwise.
"""

import ctypes
import itertools
import json
import os
import sys
import time
from importlib import import_module
from types import ModuleType
from typing import Any

from tests.native.programs import virtual_client as vm  # noqa: F401 - for the expressions

cuda = ctypes.CDLL("libcuda.so.1")
held: list[int] = []
functions: dict[str, ctypes.c_void_p] = {}
events: dict[str, ctypes.c_void_p] = {}
kept: dict[str, Any] = {}


def program(name: str) -> ModuleType:
    """Another of these programs, for its words."""
    return import_module(f"tests.native.programs.{name}")


def word(value: int | None) -> ctypes.c_uint64:
    return ctypes.c_uint64(value or 0)


def init(device: int = 0) -> int:
    """cuInit and the primary context of a device."""
    context = ctypes.c_void_p()
    return int(
        cuda.cuInit(0)
        or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        or cuda.cuCtxSetCurrent(context)
    )


def make_context() -> int:
    """One more, current."""
    return int(cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0))


modules: list[ctypes.c_void_p] = []


def load_variable(size: int) -> int:
    """A module with one variable."""
    text = f".version 8.0\n.target sm_70\n.visible .global .align 8 .b8 big[{size}];\n"
    modules.append(ctypes.c_void_p())
    return int(cuda.cuModuleLoadData(ctypes.byref(modules[-1]), text.encode()))


def unload_last() -> int:
    return int(cuda.cuModuleUnload(modules.pop()))


def alloc(size: int, function: str = "cuMemAlloc_v2", *more: int) -> int:
    address = ctypes.c_uint64()
    code = int(getattr(cuda, function)(ctypes.byref(address), word(size), *map(word, more)))
    if code == 0:
        held.append(address.value)
    return code


def alloc_rows(width: int, height: int) -> int:
    address, pitch = ctypes.c_uint64(), ctypes.c_size_t()
    found = ctypes.byref(address), ctypes.byref(pitch)
    return int(cuda.cuMemAllocPitch_v2(*found, word(width), word(height), 4))


def free() -> int:
    """The one allocated last."""
    return int(cuda.cuMemFree_v2(word(held.pop())))


def memory() -> list[int]:
    """Free and total bytes."""
    available, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(available), ctypes.byref(total)) == 0
    return [available.value, total.value]


def round_trip(text: str) -> str:
    """Host to device to another place on the device to host."""
    source = text.encode()
    target = ctypes.create_string_buffer(len(source))
    first, second = word(held[-1]), word(held[-1] + 4096)
    size = ctypes.c_size_t(len(source))
    assert cuda.cuMemcpyHtoD_v2(first, source, size) == 0
    assert cuda.cuMemcpyDtoD_v2(second, first, size) == 0
    assert cuda.cuMemcpyDtoH_v2(target, second, size) == 0
    return target.raw.decode()


def filled(value: int, count: int) -> list[int]:
    """Words written by cuMemsetD32 and read back."""
    target = (ctypes.c_uint32 * count)()
    assert cuda.cuMemsetD32_v2(word(held[-1]), value, ctypes.c_size_t(count)) == 0
    assert cuda.cuMemcpyDtoH_v2(target, word(held[-1]), ctypes.c_size_t(4 * count)) == 0
    return list(target)


def function(name: str) -> ctypes.c_void_p:
    if name not in functions:
        module, found = ctypes.c_void_p(), ctypes.c_void_p()
        assert cuda.cuModuleLoadData(ctypes.byref(module), b"any image") == 0
        assert cuda.cuModuleGetFunction(ctypes.byref(found), module, name.encode()) == 0
        functions[name] = found
    return functions[name]


def keep(name: str, value: Any) -> Any:
    """The value, which later lines find under this name in `kept`."""
    kept[name] = value
    return value


def spin(nanoseconds: int, count: int = 1, name: str = "spin") -> int:
    length = ctypes.c_uint64(nanoseconds)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
    one = [1] * 6
    return max(
        int(cuda.cuLaunchKernel(function(name), *one, 0, None, parameters, None))
        for _ in range(count)
    )


def launch(name: str) -> int:
    return int(cuda.cuLaunchKernel(function(name), *[1] * 6, 0, None, None, None))


def seconds(expression: str) -> float:
    start = time.monotonic()
    assert eval(expression) == 0, expression
    return time.monotonic() - start


def churn() -> int:
    """Allocate, launch and free until killed."""
    while True:
        assert alloc(1 << 20) == 0
        assert spin(1000) == 0
        assert free() == 0


def sync() -> int:
    return int(cuda.cuCtxSynchronize())


def record(name: str) -> int:
    if name not in events:
        events[name] = ctypes.c_void_p()
        assert cuda.cuEventCreate(ctypes.byref(events[name]), 0) == 0
    return int(cuda.cuEventRecord(events[name], None))


def elapsed(start: str, end: str) -> float:
    milliseconds = ctypes.c_float()
    assert cuda.cuEventElapsedTime(ctypes.byref(milliseconds), events[start], events[end]) == 0
    return milliseconds.value


def in_child(expression: str) -> int:
    """The exit status of a forked child that evaluates the expression."""
    child = os.fork()
    if child == 0:
        os._exit(eval(expression))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def replace_by(expression: str) -> None:
    """Go on as a new program, which answers with the expression."""
    os.execv(sys.executable, [sys.executable, "-u", sys.argv[0], expression])


def main() -> None:
    answer: Any
    for line in itertools.chain(sys.argv[1:], sys.stdin):
        answer = eval(line)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
