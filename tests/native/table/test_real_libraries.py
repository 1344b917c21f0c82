"""The shim over NVIDIA's own driver libraries, which load and answer without a GPU.

`make real-libraries` fetches those that Debian has, VCUDA_REAL_LIBRARIES names a folder with more:
folders with `libcuda.so.<release>` and `libnvidia-ml.so.<release>` each, as a driver's packages
have them. Without any all of this is skipped. They run in a container with a /dev of its own: as
root they make device nodes.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from driver_libraries import lay_out
from elftools.elf.elffile import ELFFile

from gpumanager.limits.manager import VirtualManager
from tests import ROOT
from tests.native.shim_container import Container, allocation
from tests.native.table.hook_table import TABLE, declared, hooked, load, unhooked

FOLDER = Path(os.environ.get("VCUDA_REAL_LIBRARIES", ROOT / ".real-libraries"))
RELEASES = sorted({path.parent for path in FOLDER.glob("**/libcuda.so.*.*")})

pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(not RELEASES, reason="no driver's libraries: make real-libraries"),
]

PARTS = {"launch", "work", "change"}
"""Kinds that only GPUs that are shared need."""


@pytest.fixture(params=RELEASES, ids=lambda folder: folder.name)
def release(request: pytest.FixtureRequest) -> Path:
    """A folder with one driver's libraries."""
    return Path(request.param)


def library(release: Path, name: str) -> Path:
    """The driver's own file, whatever links point to it."""
    return next(iter(sorted(release.glob(f"{name}.so.*.*")))).resolve()


def exports(path: Path) -> list[str]:
    with path.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        defined = [symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"]
    return sorted({name for name in defined if name.startswith(("cu", "nvml"))})


def needed(cores: int) -> list[str]:
    """The hooks that programs with so much of a GPU get."""
    rows = load("generate").parse_table(TABLE / "cuda.hooks")
    without = PARTS if cores == 100 else set()
    return [row.symbol for row in rows if row.exported and row.kind not in without]


def entry_points() -> list[tuple[str, int]]:
    """What cuGetProcAddress can be asked for: each name, at each version that changes it."""
    lines = (ROOT / "native" / "sim" / "table" / "cuda.txt").read_text().splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    known = [(row[1], row[2:4]) for row in rows if row[1] not in ("data", "-")]
    return sorted({(base, int(since)) for base, both in known for since in both if since != "-"})


def device_nodes() -> list[Path]:
    """Of this machine, outside of any container."""
    return sorted(Path("/dev").glob("nvidia*"))


@pytest.fixture(params=[50, 100])
def cores(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
async def container(release: Path, cores: int, work: Path, manager: VirtualManager) -> Container:
    libraries = lay_out(work / "lib", library(release, "libcuda"), library(release, "libnvidia-ml"))
    return Container(libraries, await allocation(manager, cores), work)


def known(library: str) -> list[str]:
    """What any driver has or a header declares, and what our libraries have."""
    return sorted({*hooked(library), *unhooked(library), *declared(library)})


@pytest.mark.parametrize("kind", ["cuda", "nvml"])
@pytest.mark.parametrize("name", ["lib{}.so", "lib{}.so.1"])
async def test_through_the_shim_the_functions_of_the_driver_are_found_and_no_others(
    container: Container, release: Path, kind: str, name: str
) -> None:
    soname = {"cuda": "cuda", "nvml": "nvidia-ml"}[kind]
    own = exports(library(release, f"lib{soname}"))

    told = await container.run(
        f"""
library = ctypes.CDLL({name.format(soname)!r})
tell(found=[name for name in {sorted({*known(kind), *own})} if hasattr(library, name)])
"""
    )

    assert len(own) > 300
    assert told["found"] == own


PROC_ADDRESS = """
shim, real = cuda(), ctypes.CDLL("libvcuda-real.so.1")
ours = {address_of(getattr(real, name)): address_of(getattr(shim, name))
        for name in HOOKED if hasattr(real, name)}
different, swapped = [], set()
for name, since in ENTRIES:
    for version in (since - 1, since, 12050, 13000):
        for flags in (0, 1, 2):
            result, pointer, status = entry(real, name, version, flags)
            wanted = result, ours.get(pointer, pointer), status
            if entry(shim, name, version, flags) != wanted:
                different.append([name, version, flags])
            if pointer in ours:
                swapped.add(name)
tell(different=different, swapped=len(swapped))
"""


async def test_the_shim_hands_out_the_drivers_entry_points_but_for_the_hooks_that_are_needed(
    container: Container, cores: int
) -> None:
    told = await container.run(
        f"HOOKED = {needed(cores)}\nENTRIES = {entry_points()}\n{PROC_ADDRESS}"
    )

    assert told["different"] == []
    assert told["swapped"] > 10


def variants() -> list[tuple[str, str, int, int]]:
    """Each hook, and by which family, version and flags it is asked for."""
    generate = load("generate")
    versions = generate.parse_versions(ROOT / "native" / "sim" / "table" / "cuda.txt")
    rows = [row for row in generate.parse_table(TABLE / "cuda.hooks") if row.symbol in versions]
    return [
        (row.symbol, row.family, since, flags)
        for row in rows
        if row.exported
        for since, flags in zip(versions[row.symbol], (0, 2), strict=True)
        if since
    ]


async def test_the_driver_answers_with_its_exports_at_the_versions_of_the_table(
    container: Container,
) -> None:
    """So each hook is found by its address, and would be found by name and version."""
    told = await container.run(
        f"""
real = ctypes.CDLL("libvcuda-real.so.1")
asked = [row for row in {variants()!r} if hasattr(real, row[0])]
tell(others=[row for row in asked if entry(real, *row[1:])[1] != address_of(getattr(real, row[0]))],
     asked=len(asked))
"""
    )

    assert told["others"] == []
    assert told["asked"] > 250


async def test_the_drivers_own_results_come_through(container: Container, work: Path) -> None:
    before = device_nodes()
    bare = Container(container.libraries, None, work)
    script = """
driver, management = cuda(), nvml()
count, memory = ctypes.c_uint(), (ctypes.c_ulonglong * 5)()
tell(early=allocate(driver, 1)[0], wrong=driver.cuInit(1), init=driver.cuInit(0),
     late=allocate(driver, 1)[0], management=management.nvmlInit_v2(),
     lists=management.nvmlDeviceGetComputeRunningProcesses_v3(None, ctypes.byref(count), None),
     memory=management.nvmlDeviceGetMemoryInfo(None, memory))
"""
    told: list[dict[str, Any]] = [await one.run(script) for one in (container, bare)]

    assert told[0] == told[1]
    assert (told[0]["init"], told[0]["management"]) == (100, 9)  # no device; driver not loaded
    assert (told[0]["early"], told[0]["late"], told[0]["lists"]) == (3, 3, 1)  # not initialised
    assert device_nodes() == before


UCX = FOLDER / "ucx" / "libucx"
UCX_NAMES = [
    "cuMemAlloc",
    "cuMemAlloc_v2",
    "cuMemAllocManaged",
    "cuMemAllocPitch",
    "cuMemAllocPitch_v2",
    "cuMemMap",
    "cuModuleGetGlobal_v2",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuLibraryGetGlobal",
    "cuMemFree",
    "cuMemFree_v2",
    "cuMemFreeHost",
    "cuMemFreeHost_v2",
    "cuMemUnmap",
    "cuMemFreeAsync",
]
UCX_EVENTS = 1 << 20 | 1 << 21
"""Memory of GPUs is allocated, and freed."""

PATCHED = f"""
driver = cuda()
names = [name for name in {UCX_NAMES} if hasattr(driver, name)]
def begins():
    return [ctypes.string_at(address_of(getattr(driver, name)), 12) for name in names]
before = begins()
_, ucm, _ = [ctypes.CDLL({str(UCX)!r} + "/lib/" + name, mode=ctypes.RTLD_GLOBAL)
             for name in ("libucs.so.0", "libucm.so.0", "ucx/libucm_cuda.so.0")]
seen = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: None)
result = ctypes.c_int8(ucm.ucm_set_event_handler({UCX_EVENTS}, 1000, seen, None)).value
tell(result=result, patched=[n for n, a, b in zip(names, before, begins()) if a != b],
     called=allocate(driver, 1)[0])
"""


@pytest.mark.skipif(not UCX.exists(), reason="no UCX: make real-libraries")
@pytest.mark.parametrize("far", ["n", "y"])
async def test_ucx_patches_the_functions_behind_the_shim_as_the_drivers_own(
    container: Container, release: Path, work: Path, far: str
) -> None:
    """far: by a jump of 12 bytes, as where libraries are more than 2 GiB apart; else of 5."""
    driver = [library(release, name) for name in ("libcuda", "libnvidia-ml")]
    bare = Container(lay_out(work / "bare", *driver, shim=False), None, work)

    managed, own = [
        await one.run(PATCHED, UCX_MEM_BISTRO_FORCE_FAR_JUMP=far) for one in (container, bare)
    ]

    assert managed == own
    assert managed["result"] == 0
    assert len(managed["patched"]) >= 15
