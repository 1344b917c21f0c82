"""NVML's figures behind the shim."""

from pathlib import Path

import pytest

from gpumanager.units import MIB
from tests.native.shim_container import LIMIT, Container

pytestmark = pytest.mark.namespaces


async def test_nvml_shows_the_limit_and_what_the_container_holds(container: Container) -> None:
    told = await container.run(
        f"""
driver, management = cuda(), nvml()
driver.cuInit(0)
allocate(driver, {2 * MIB})
plain, full, wrong = ((ctypes.c_ulonglong * 5)() for _ in range(3))
full[0], wrong[0] = 40 | 2 << 24, 7
device, other = ctypes.c_void_p(1), ctypes.c_void_p(2)
results = [management.nvmlDeviceGetMemoryInfo(device, plain),
           management.nvmlDeviceGetMemoryInfo_v2(device, full)]
calls = management.stand_in_uuid_calls()
tell(results=results, plain=list(plain)[:3], full=list(full), calls=calls,
     mismatch=management.nvmlDeviceGetMemoryInfo_v2(device, wrong), untouched=list(wrong)[1:],
     stranger=[management.nvmlDeviceGetMemoryInfo(other, plain), *list(plain)[:3]])
"""
    )

    assert told["results"] == [0, 0]
    assert told["plain"] == [LIMIT, LIMIT - 2 * MIB, 2 * MIB]
    assert told["full"] == [40 | 2 << 24, LIMIT, 0, LIMIT - 2 * MIB, 2 * MIB]
    assert told["calls"] == 2  # one look for each call, none for the library's call of itself
    assert (told["mismatch"], told["untouched"]) == (25, [0, 0, 0, 0])
    assert told["stranger"] == [0, 1024 * MIB, 1024 * MIB - 4096 - 12288, 12288]


async def test_nvml_without_an_allocation_passes_through(work: Path, driver: Path) -> None:
    told = await Container(driver, None, work).run(
        """
management = nvml()
plain = (ctypes.c_ulonglong * 3)()
tell(result=management.nvmlDeviceGetMemoryInfo(ctypes.c_void_p(1), plain), total=plain[0])
"""
    )

    assert told == {"result": 0, "total": 1024 * MIB}
