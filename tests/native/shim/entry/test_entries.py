"""How a program gets at the driver through the shim: by name, by version, by cuGetProcAddress."""

from pathlib import Path

import pytest

from gpumanager.limits.manager import VirtualManager
from gpumanager.sim.gpu import SimulatedGpus
from tests.native.gpu_node import GpuNode, machine_of
from tests.native.shim_container import ALLOCATION, LIMIT, Container, allocation
from tests.native.table.hook_table import hooked
from vcuda_shim._shim import lib

pytestmark = pytest.mark.namespaces


async def test_a_function_the_shim_never_heard_of_is_the_drivers_own(container: Container) -> None:
    told = await container.run(
        """
driver, real = cuda(), ctypes.CDLL("libvcuda-real.so.1")
tell(product=driver.cuFutureFunction(6, 7),
     same=address_of(driver.cuFutureFunction) == address_of(real.cuFutureFunction),
     asked=entry(driver, "cuFutureFunction", 13000)[1] == address_of(real.cuFutureFunction))
"""
    )

    assert told == {"product": 42, "same": True, "asked": True}


@pytest.mark.parametrize(
    ("asked", "exact"),
    [
        (("cuInit", 12050, 0), "cuInit"),
        (("cuGetProcAddress", 11030, 0), "cuGetProcAddress"),
        (("cuGetProcAddress", 12000, 0), "cuGetProcAddress_v2"),
        (("cuMemAlloc", 2000, 0), "cuMemAlloc"),
        (("cuMemAlloc", 12050, 0), "cuMemAlloc_v2"),
        (("cuMemAlloc", 12050, 2), "cuMemAlloc_v2"),
        (("cuMemGetInfo", 12050, 0), "cuMemGetInfo_v2"),
        (("cuLaunchKernel", 12050, 0), "cuLaunchKernel"),
        (("cuLaunchKernel", 12050, 2), "cuLaunchKernel_ptsz"),
    ],
)
async def test_get_proc_address_returns_the_hook_of_exactly_the_variant_the_driver_chose(
    container: Container, manager: VirtualManager, asked: tuple[str, int, int], exact: str
) -> None:
    await allocation(manager, cores=99)

    told = await container.run(
        f"""
driver, real = cuda(), ctypes.CDLL("libvcuda-real.so.1")
tell(answer=entry(driver, *{asked!r}), hook=address_of(driver.{exact}),
     real=address_of(real.{exact}))
"""
    )

    assert told["answer"] == [0, told["hook"], 0]
    assert told["hook"] != told["real"]


LAUNCHES = """
driver, real = cuda(), ctypes.CDLL("libvcuda-real.so.1")
def whose(symbol):
    found = entry(driver, symbol, 12050)[1]
    return "driver" if found == address_of(getattr(real, symbol)) else "shim"
before = whose("cuLaunchKernel")
driver.cuInit(0)
tell(before=before, after=whose("cuLaunchKernel"), other=whose("cuInit"))
"""


@pytest.mark.parametrize(("cores", "whose"), [(100, "driver"), (99, "shim")])
async def test_of_whole_gpus_a_launch_is_the_drivers_own(
    container: Container, manager: VirtualManager, cores: int, whose: str
) -> None:
    await allocation(manager, cores)

    told = await container.run(LAUNCHES)

    assert told == {"before": whose, "after": whose, "other": "shim"}


async def test_without_a_configuration_to_read_a_launch_is_hooked(container: Container) -> None:
    assert container.allocation is not None
    (container.allocation / "config").unlink()

    told = await container.run(LAUNCHES)

    assert told["before"] == "shim"


async def test_get_proc_address_leaves_what_it_does_not_hook_and_the_status_alone(
    container: Container,
) -> None:
    told = await container.run(
        """
driver, real = cuda(), ctypes.CDLL("libvcuda-real.so.1")
pointer = ctypes.c_void_p(1)
tell(unhooked=entry(driver, "cuCtxGetDevice", 12050) == entry(real, "cuCtxGetDevice", 12050),
     unknown=entry(driver, "cuNothing", 12050), too_old=entry(driver, "cuMemGetInfo", 2000),
     empty=entry(driver, "", 0),
     first_form=driver.cuGetProcAddress(b"cuNothing", ctypes.byref(pointer), 12050,
                                        ctypes.c_uint64(0)))
"""
    )

    assert told["unhooked"]
    assert told["unknown"] == [0, None, 1]
    assert told["too_old"] == [0, None, 2]
    assert told["empty"] == [0, None, 1]
    assert told["first_form"] == 500


async def told_after(
    asked: list[tuple[str, int]], container: Container, manager: VirtualManager, **env: str
) -> tuple[int, bool]:
    """What the shim of a program that asks for these tells the manager: degraded, unlimited."""
    program = container.begin(
        f"""
driver = cuda()
for question in {asked!r}:
    assert entry(driver, *question)[1]
driver.cuInit(0)
pause()
""",
        **env,
    )
    await program.pauses()
    (process,) = manager.usage(ALLOCATION).processes
    await program.ends()
    return process.degraded, process.unlimited


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("cuMemAlloc", 99000), (0, True)),
        (("cuMemGetInfo", 99000), (lib.VCUDA_DEGRADED_ENTRY, False)),
        (("cuFutureFunction", 99000), (0, False)),
    ],
)
async def test_a_variant_newer_than_the_shim_is_reported_by_what_goes_without_it(
    container: Container, manager: VirtualManager, asked: tuple[str, int], told: tuple[int, bool]
) -> None:
    assert await told_after([asked], container, manager) == told


async def test_a_variant_newer_than_the_shim_is_handed_out(container: Container) -> None:
    told = await container.run(
        """
driver, real = cuda(), ctypes.CDLL("libvcuda-real.so.1")
tell(same=entry(driver, "cuMemAlloc", 99000)[1] == address_of(real.cuMemAlloc_v9))
"""
    )

    assert told == {"same": True}


THUNKS = pytest.mark.parametrize("thunks", ["stable", "fresh"])
"""How the stand-in's cuGetProcAddress answers with other pointers than its exports."""


@THUNKS
async def test_what_is_no_export_is_placed_by_name_and_version(
    container: Container, manager: VirtualManager, thunks: str
) -> None:
    await allocation(manager, cores=99)
    asked = {
        "cuGetProcAddress_v2": ("cuGetProcAddress", 12000, 0),
        "cuMemAlloc": ("cuMemAlloc", 3010, 0),
        "cuMemAlloc_v2": ("cuMemAlloc", 12050, 0),
        "cuLaunchKernel": ("cuLaunchKernel", 12050, 1),
        "cuLaunchKernel_ptsz": ("cuLaunchKernel", 12050, 2),
    }

    told = await container.run(
        f"""
driver = cuda()
tell(wrong=[name for name, asked in {asked!r}.items()
            if entry(driver, *asked) != (0, address_of(getattr(driver, name)), 0)],
     others=[ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int)(
         entry(driver, "cuFutureFunction", 13000)[1])(6, 7), entry(driver, "cuNothing", 13000)])
""",
        STAND_IN_THUNKS=thunks,
    )

    assert told == {"wrong": [], "others": [42, [0, None, 1]]}


@THUNKS
async def test_what_is_placed_by_name_is_limited(
    container: Container, manager: VirtualManager, thunks: str
) -> None:
    asked = [("cuMemAlloc", 12050), ("cuMemCreate", 13000), ("cuFutureFunction", 13000)]

    told = await told_after(asked, container, manager, STAND_IN_THUNKS=thunks)

    assert told == (0, False)


@pytest.mark.parametrize(
    ("thunks", "version", "unlimited"),
    [
        ("stable", 80000, False),  # the variant of before: it has the same thunk
        ("stable", 99000, True),
        ("fresh", 80000, True),
    ],
)
async def test_a_variant_that_name_and_version_cannot_place_is_reported(
    container: Container,
    manager: VirtualManager,
    thunks: str,
    version: int,
    unlimited: bool,  # noqa: FBT001
) -> None:
    asked = [("cuMemAlloc", version)]

    told = await told_after(asked, container, manager, STAND_IN_THUNKS=thunks)

    assert told == (0, unlimited)


async def test_a_program_of_cuda_13_is_hooked_and_not_degraded(
    work: Path, manager: VirtualManager
) -> None:
    gpus = SimulatedGpus.create(work, machine_of(cuda_version=13050))
    node = GpuNode(work, manager, gpus)
    container = await node.container(LIMIT, cores=99)
    asked = [("cuCtxSynchronize", 13000), ("cuMulticastBindMem", 13010)]
    asked += [("cuMulticastBindAddr", 13010), ("cuStreamBeginRecaptureToGraph", 13030)]
    program = container.begin(
        f"""
driver = cuda()
begin(driver)
names = {{address_of(getattr(driver, name)): name for name in {hooked("cuda")!r}
         if hasattr(driver, name)}}
hooks = [names.get(entry(driver, *question, 0)[1]) for question in {asked!r}]
synchronised = driver.cuCtxSynchronize_v2(None)
pause()
tell(hooks=hooks, synchronised=synchronised)
"""
    )
    await program.pauses()
    (process,) = manager.usage(ALLOCATION).processes

    assert await program.ends() == {
        "hooks": [
            "cuCtxSynchronize_v2",
            "cuMulticastBindMem_v2",
            "cuMulticastBindAddr_v2",
            "cuStreamBeginRecaptureToGraph",
        ],
        "synchronised": 0,
    }
    assert process.degraded & lib.VCUDA_DEGRADED_ENTRY == 0


async def test_dlvsym_with_the_librarys_version_finds_the_hook(container: Container) -> None:
    told = await container.run(
        """
driver = cuda()
libc = ctypes.CDLL(None)
libc.dlvsym.restype = ctypes.c_void_p
found = libc.dlvsym(ctypes.c_void_p(driver._handle), b"cuInit", b"libcuda.so.1")
tell(found=found == address_of(driver.cuInit))
"""
    )

    assert told["found"]


async def test_the_export_table_is_the_drivers_own(container: Container) -> None:
    told = await container.run(
        """
driver, real = cuda(), ctypes.CDLL("libvcuda-real.so.1")
tables = [ctypes.c_void_p(), ctypes.c_void_p()]
results = [library.cuGetExportTable(ctypes.byref(table), (ctypes.c_byte * 16)())
           for library, table in zip((driver, real), tables)]
tell(results=results, same=tables[0].value == tables[1].value)
"""
    )

    assert told == {"results": [0, 0], "same": True}
