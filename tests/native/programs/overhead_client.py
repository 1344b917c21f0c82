"""The words of test_overhead.py, inside of the container: contexts, modules, libraries."""

import ctypes
import random
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.native.programs.shim_client import (
    OUT_OF_MEMORY,
    SUCCESS,
    allocate,
    cuda,
    free,
    memory,
    soon,
)

PAGE = 2 << 20
LONGEST_SECONDS = 120.0
"""For a turn, of a program that others leave nothing."""

driver = cuda()


def try_create(variant: str = "_v2") -> tuple[int, int | None]:
    """The result of cuCtxCreate in one of its versions, and the context."""
    driver.cuInit(0)
    context = ctypes.c_void_p()
    middle: tuple[Any, ...] = {"_v3": (None, 0), "_v4": (None,)}.get(variant, ())
    function = getattr(driver, f"cuCtxCreate{variant}")
    return function(ctypes.byref(context), *middle, 0, 0), context.value


def create(variant: str = "_v2") -> ctypes.c_void_p:
    result, context = try_create(variant)
    assert result == SUCCESS
    return ctypes.c_void_p(context)


def make() -> None:
    create()


def try_retain() -> tuple[int, int | None]:
    context = ctypes.c_void_p()
    driver.cuInit(0)
    return driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), context.value


def retain() -> None:
    """The primary context, current."""
    result, context = try_retain()
    assert result == SUCCESS
    assert driver.cuCtxSetCurrent(ctypes.c_void_p(context)) == SUCCESS


def behind_the_shim() -> None:
    """A primary context, made by the driver's own functions."""
    real = ctypes.CDLL("libvcuda-real.so.1")
    context = ctypes.c_void_p()
    driver.cuInit(0)
    assert real.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == SUCCESS
    assert real.cuCtxSetCurrent(context) == SUCCESS


def ptx(variable: int) -> bytes:
    declared = f".visible .global .align 8 .b8 big[{variable}];\n" if variable else ""
    return f".version 8.0\n.target sm_70\n.address_size 64\n{declared}".encode()


def cubin(variable: int) -> bytes:
    """An ELF file for a GPU with one section without bits."""
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01" + bytes(9),
        *(2, 190, 1, 0, 0, 64, 0, 64, 0, 0, 64, 2, 0),
    )
    nothing, section = bytes(64), struct.pack("<IIQQQQIIQQ", 0, 8, 3, 0, 0, variable, 0, 0, 1, 0)
    return header + nothing + section


def fat(size: int) -> bytes:
    """The head of a fat binary: it says how long it is, not what of it will be loaded."""
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, size)


def try_load_image(image: bytes) -> tuple[int, int | None]:
    module = ctypes.c_void_p()
    return driver.cuModuleLoadData(ctypes.byref(module), image), module.value


def try_load(loader: str, variable: int) -> tuple[int, int | None]:
    """The result of one of the functions that load, and the handle."""
    handle, source = ctypes.c_void_p(), ptx(variable)
    more: dict[str, tuple[Any, ...]] = {
        "cuModuleLoadDataEx": (0, None, None),
        "cuLibraryLoadData": (None, None, 0, None, None, 0),
        "cuLibraryLoadFromFile": (None, None, 0, None, None, 0),
    }
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(source)
        from_file = loader in ("cuModuleLoad", "cuLibraryLoadFromFile")
        what = file.name.encode() if from_file else source
        function = getattr(driver, loader)
        return function(ctypes.byref(handle), what, *more.get(loader, ())), handle.value


def load(variable: int) -> ctypes.c_void_p:
    result, module = try_load("cuModuleLoadData", variable)
    assert result == SUCCESS
    return ctypes.c_void_p(module)


def load_library(variable: int) -> ctypes.c_void_p:
    result, library = try_load("cuLibraryLoadData", variable)
    assert result == SUCCESS
    return ctypes.c_void_p(library)


def module_of(library: ctypes.c_void_p) -> None:
    module = ctypes.c_void_p()
    assert driver.cuLibraryGetModule(ctypes.byref(module), library) == SUCCESS


def unload(loader: str, handle: int | None) -> None:
    function = driver.cuLibraryUnload if "Library" in loader else driver.cuModuleUnload
    assert function(ctypes.c_void_p(handle)) == SUCCESS


def try_retain_uninitialised() -> int:
    return int(driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0))


def ledger_of_driver() -> int:
    """What the driver itself says all processes hold."""
    real = ctypes.CDLL("libvcuda-real.so.1")
    left, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert real.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total)) == SUCCESS
    return total.value - left.value


class Work:
    """What a program has on its GPU: contexts, and in the current one memory and modules."""

    def __init__(self, choice: random.Random) -> None:
        self.choice = choice
        self.contexts = [create()]
        self.held: list[int] = []
        self.modules: list[tuple[str, int | None]] = []

    def allocate(self) -> int:
        result, address = allocate(driver, self.choice.randrange(1, 100 << 20))
        self.held += [address] if result == SUCCESS else []
        return result

    def free(self) -> int:
        return free(driver, self.held.pop()) if self.held else SUCCESS

    def load(self) -> int:
        loader = self.choice.choice(["cuModuleLoadData", "cuLibraryLoadData", "cuModuleLoad"])
        result, handle = try_load(loader, self.choice.randrange(50 << 20))
        self.modules += [(loader, handle)] if result == SUCCESS else []
        return result

    def unload(self) -> int:
        if self.modules:
            unload(*self.modules.pop())
        return SUCCESS

    def enter(self) -> int:
        """One more context, left again at once."""
        result, context = try_create()
        if result == SUCCESS:
            self.choice.random() < 0.5 and load(1 << 20)  # goes with it
            allocate(driver, 1 << 20)
            assert driver.cuCtxDestroy_v2(ctypes.c_void_p(context)) == SUCCESS
        return result

    def heap(self) -> int:
        size = self.choice.randrange(8 << 20, 400 << 20)
        return int(driver.cuCtxSetLimit(2, ctypes.c_size_t(size)))


def history(seed: int, limit: int, truth: Callable[[], int], turns: int = 60) -> list[object]:
    """Do things by chance; what went wrong.

    Where a busy machine keeps the manager from measuring in time, an estimate stands, and free
    memory does not grow until something is done (overhead_withheld).
    """

    def is_exact() -> bool:
        if memory(driver)[0] == (limit - truth()) // PAGE * PAGE:
            return True
        result, module = try_load("cuModuleLoadData", 0)
        if result == SUCCESS:
            unload("cuModuleLoadData", module)
        return False

    choice = random.Random(seed)
    work = Work(choice)
    wrong: list[object] = []
    for turn in range(turns):
        name = choice.choice(["allocate", "allocate", "free", "load", "unload", "enter", "heap"])
        result = getattr(work, name)()
        if result not in (SUCCESS, OUT_OF_MEMORY):
            wrong.append([turn, name, result])
        if not soon(is_exact, 5):
            wrong.append([turn, name, memory(driver)[0], limit - truth()])
    return wrong


def race(seed: int, seconds: float) -> dict[str, int]:
    """What a process does among others that want the same memory; how often it succeeded.

    For so long, and until it has had something: who comes late may be refused for as long.
    """
    choice, begun = random.Random(seed), time.monotonic()
    done = {"contexts": 0, "refused": 0}
    while time.monotonic() - begun < (seconds if done["contexts"] else LONGEST_SECONDS):
        result, context = try_create()
        done["refused" if result else "contexts"] += 1
        while result == SUCCESS and choice.random() < 0.9:
            if choice.random() < 0.5:
                result = allocate(driver, choice.randrange(1, 200 << 20))[0]
            else:
                result = try_load("cuModuleLoadData", choice.randrange(100 << 20))[0]
        assert result in (SUCCESS, OUT_OF_MEMORY)
        if context is not None:
            assert driver.cuCtxDestroy_v2(ctypes.c_void_p(context)) == SUCCESS
    return done
