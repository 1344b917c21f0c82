"""NVML's own calls to its exports come back through the shim, however it was loaded: no view of the
container is ever taken of what is one already."""

import os
from pathlib import Path

import pytest

from gpumanager.units import GIB, MIB
from tests.native.shim_container import LIMIT, Container

PRELUDE = """
class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("total", "free", "used")]
driver = cuda()
driver.cuInit(0)
"""


@pytest.mark.namespaces
@pytest.mark.parametrize("name", ["libnvidia-ml.so.1", "libnvidia-ml.so"])
@pytest.mark.parametrize("mode", [os.RTLD_LOCAL, os.RTLD_GLOBAL, os.RTLD_DEEPBIND])
async def test_however_it_is_opened_the_view_is_applied_once(
    container: Container, name: str, mode: int
) -> None:
    told = await container.run(
        f"""{PRELUDE}
assert allocate(driver, {4 * MIB})[0] == SUCCESS
library, device, memory = ctypes.CDLL({name!r}, mode={mode}), ctypes.c_void_p(), Memory()
library.nvmlInit_v2()
library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
before = library.stand_in_uuid_calls()
assert library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == SUCCESS
tell(total=memory.total, used=memory.used, free=memory.free,
     asked=library.stand_in_uuid_calls() - before)
"""
    )

    assert told == {"total": LIMIT, "used": 4 * MIB, "free": LIMIT - 4 * MIB, "asked": 1}


@pytest.mark.namespaces
async def test_without_an_allocation_it_is_the_drivers_view(work: Path, driver: Path) -> None:
    told = await Container(driver, None, work).run(
        f"""{PRELUDE}
library, memory = ctypes.CDLL("libnvidia-ml.so"), Memory()
library.nvmlDeviceGetMemoryInfo(ctypes.c_void_p(1), ctypes.byref(memory))
tell(total=memory.total)
"""
    )

    assert told == {"total": GIB}
