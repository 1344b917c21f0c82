"""Memory at locations and of allocation types that came with CUDA 13, or that nobody knows yet."""

import asyncio
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from driver_libraries import lay_out

from gpumanager.limits.manager import VirtualManager
from gpumanager.units import MIB
from tests.native.gpu_node import LIMIT, GpuNode
from tests.native.shim_container import ALLOCATION, INCLUDE, Container, reached
from vcuda_shim import SIMULATED_DRIVER
from vcuda_shim._shim import lib

pytestmark = pytest.mark.namespaces

PIECE = 256 * MIB
FITS = LIMIT // PIECE
MANAGED, NONE, DEVICE, NUMA_NODE, DOMAIN, FUTURE = 2, 0, 1, 3, 6, 77

WANTED: Mapping[str, Mapping[str, int]] = {
    "locality domain 3 of device 0": {"place": DOMAIN, "ordinal": 3 << 8},
    "a location of the future": {"place": FUTURE, "ordinal": 12},
    "an allocation type of the future": {"kind": 3, "place": NUMA_NODE},
}
POOLS = {
    **WANTED,
    "managed memory": {"kind": MANAGED, "place": NONE},
    "managed memory that prefers the host": {"kind": MANAGED, "place": NUMA_NODE},
    "managed memory that prefers device 0": {"kind": MANAGED, "place": DEVICE},
}
UNKNOWN = {name: wanted for name, wanted in WANTED.items() if "future" in name}

PROGRAM = f"""
from tests.native.programs.seam_client import *
from tests.native.programs.virtual_client import Properties, Location
program = Program({LIMIT})

def create(*, kind=PINNED, place=ON_DEVICE, ordinal=0):
    handle, wanted = ctypes.c_uint64(), Properties(kind, 0, Location(place, ordinal))
    return program.driver.cuMemCreate(
        ctypes.byref(handle), ctypes.c_size_t({PIECE}), ctypes.byref(wanted), ctypes.c_uint64(0))
"""


def newer_libraries(work: Path) -> Path:
    """Behind the shim a newer driver: the simulated one, and newer_driver.c before it."""
    (simulated,) = SIMULATED_DRIVER.glob("libcuda.so.*")
    (nvml,) = SIMULATED_DRIVER.glob("libnvidia-ml.so.*")
    older, newer = work / "libcuda.so.9", work / "libcuda.so.13.4"
    older.write_bytes(simulated.read_bytes().replace(b"libcuda.so.1\0", b"libcuda.so.9\0"))
    flags = ["gcc", "-std=gnu11", "-fPIC", "-shared", f"-I{INCLUDE}", "-Wl,-soname,libcuda.so.1"]
    source = Path(__file__).with_name("newer_driver.c")
    parts = [str(source), "-Wl,--no-as-needed", str(older), f"-Wl,-rpath,{work}"]
    subprocess.run([*flags, "-o", str(newer), *parts, "-ldl"], check=True, timeout=300)
    return lay_out(work / "newer", newer, nvml)


@pytest.fixture
async def container(one_gpu: GpuNode, work: Path) -> Container:
    container = await one_gpu.container()
    return Container(newer_libraries(work), container.allocation, work, container.devices)


@pytest.mark.parametrize("wanted", WANTED.values(), ids=WANTED)
async def test_physical_memory_at_any_location_that_may_be_the_gpus_is_charged(
    container: Container, wanted: Mapping[str, int]
) -> None:
    told = await container.run(
        f"""{PROGRAM}
results = [create(**{wanted!r}) for _ in range({FITS + 1})]
tell(results=results, books=program.books(), truth=program.truth())
"""
    )

    assert told["results"] == [0] * FITS + [2]
    assert told["books"] == told["truth"] == LIMIT


@pytest.mark.parametrize("wanted", POOLS.values(), ids=POOLS)
async def test_a_pool_of_memory_that_may_be_the_gpus_is_charged(
    container: Container, wanted: Mapping[str, int]
) -> None:
    told = await container.run(
        f"""{PROGRAM}
pool = program.made(**{wanted!r})
results = [program.alloc({PIECE}, None, pool)[0] for _ in range({FITS + 1})]
tell(results=results, books=program.books(), truth=program.truth())
"""
    )

    assert told["results"] == [0] * FITS + [2]
    assert told["books"] == told["truth"] == LIMIT


@pytest.mark.parametrize("wanted", list(WANTED.values())[:2], ids=list(WANTED)[:2])
async def test_a_graph_that_allocates_where_it_may_be_the_gpus_is_charged(
    container: Container, wanted: Mapping[str, int]
) -> None:
    told = await container.run(
        f"""{PROGRAM}
large = program.graph({LIMIT + PIECE}, **{wanted!r})
refused = program.launch(large)
small = program.graph({PIECE}, **{wanted!r})
launched = program.launch(small)
tell(refused=refused, launched=launched, both=program.both())
"""
    )

    assert told == {"refused": 2, "launched": 0, "both": [PIECE, PIECE]}


async def test_host_memory_is_charged_nothing(container: Container) -> None:
    told = await container.run(
        f"""{PROGRAM}
host = program.made(place={NUMA_NODE})
results = [create(place={NUMA_NODE}), program.alloc({2 * LIMIT}, None, host)[0]]
tell(results=results, both=program.both())
"""
    )

    assert told == {"results": [0, 0], "both": [0, 0]}


async def marked(container: Container, manager: VirtualManager, script: str) -> int:
    """VCUDA_DEGRADED_ENTRY if a program is marked so while it runs, else 0."""
    work = container.work
    asked, seen = str(work / "asked"), str(work / "seen")
    running: asyncio.Task[Any] = asyncio.create_task(
        container.run(f"{PROGRAM}{script}\nreach({asked!r})\nwait_for({seen!r})\n")
    )
    await reached(work / "asked", running)
    (process,) = manager.usage(ALLOCATION).processes
    (work / "seen").touch()
    await running
    return int(process.degraded & lib.VCUDA_DEGRADED_ENTRY)


USES = {
    "cuMemCreate": "assert create(**{wanted}) == 0",
    "cuMemPoolCreate": "program.made(**{wanted})",
    "cuGraphInstantiate": "program.graph(1 << 20, **{wanted})",
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (UNKNOWN["a location of the future"], lib.VCUDA_DEGRADED_ENTRY),
        (WANTED["locality domain 3 of device 0"], 0),
    ],
    ids=["unknown", "known"],
)
async def test_a_process_that_uses_a_location_nobody_knows_is_marked(
    container: Container,
    manager: VirtualManager,
    use: str,
    wanted: Mapping[str, int],
    expected: int,
) -> None:
    assert await marked(container, manager, use.format(wanted=wanted)) == expected


async def test_a_location_that_the_driver_refuses_marks_nobody(
    one_gpu: GpuNode, manager: VirtualManager
) -> None:
    container = await one_gpu.container()

    assert await marked(container, manager, "assert create(place=77) == 1") == 0
