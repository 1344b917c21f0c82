"""Who is on a GPU, as NVML behind the shim says it: the container's own processes.

Each program holds 2 MiB, a page; its neighbour, which calls itself 1 in a pid namespace of its own,
holds 4 MiB. What the driver lists is up to the test.
"""

from typing import Any

import pytest

from gpumanager.units import MIB
from tests.native.shim_container import Container

pytestmark = pytest.mark.namespaces

FOREIGN = 4_000_000_000
"""A pid no process has."""

PRELUDE = f"""
from tests.native.programs.nvml_client import *
driver, management = cuda(), nvml()
driver.cuInit(0)
assert allocate(driver, {2 * MIB})[0] == SUCCESS
gpu, other_gpu, own, foreign = ctypes.c_void_p(1), ctypes.c_void_p(2), own_pid(), {FOREIGN}
def occupy(kind, *pids):
    for pid in pids:
        management.stand_in_occupy(kind, ctypes.c_uint(pid))
"""


async def run(container: Container, script: str) -> dict[str, Any]:
    """The script, with a neighbour at hand, whose host pid is `beside`."""
    lines = "\n".join(f"    {line}" for line in script.strip().splitlines())
    return await container.run(f"{PRELUDE}\nwith neighbour({4 * MIB}) as beside:\n{lines}\n")


ALL_LISTS = (
    "seen = {f'{kind}{version}': processes(management, kind, version, gpu)"
    " for kind in range(3) for version in VERSIONS}"
    " | {f'{mode} detail': details(management, mode, gpu) for mode in range(3)}"
)


async def test_every_list_has_the_containers_processes_by_its_own_pids_with_what_they_hold(
    container: Container,
) -> None:
    told = await run(
        container,
        f"""
for kind in range(3):
    occupy(kind, foreign, beside, foreign + 1, own)
{ALL_LISTS}
tell(own=own, seen=seen)
""",
    )

    expected = [7, 2, 0, [[1, 4 * MIB], [told["own"], 2 * MIB]]]
    assert len(told["seen"]) == 12
    assert all(answer == expected for answer in told["seen"].values()), told["seen"]


async def test_where_the_driver_translates_pids_the_lists_are_the_same(
    container: Container,
) -> None:
    told = await run(
        container,
        f"""
for kind in range(3):
    occupy(kind, 1, own)
{ALL_LISTS}
tell(own=own, seen=seen)
""",
    )

    expected = [7, 2, 0, [[1, 4 * MIB], [told["own"], 2 * MIB]]]
    assert all(answer == expected for answer in told["seen"].values()), told["seen"]


async def test_whom_the_driver_hides_the_books_add_where_compute_processes_are_listed(
    container: Container,
) -> None:
    told = await run(
        container,
        f"""
for kind in range(3):
    occupy(kind, foreign)
{ALL_LISTS}
entries, count = (Second * 2)(), UINT(2)
assert management.nvmlDeviceGetComputeRunningProcesses_v3(gpu, ctypes.byref(count), entries) == 0
tell(own=own, seen=seen, instances=rows(entries, 2, ["instance", "part"]))
""",
    )

    both = [[told["own"], 2 * MIB], [1, 4 * MIB]]
    for name, (sized, needed, filled, processes) in told["seen"].items():
        if name.startswith("0"):
            assert (sized, needed, filled) == (7, 2, 0)
            assert sorted(processes) == sorted(both)
        else:
            assert (sized, needed, filled, processes) == (0, 0, 0, [])
    assert told["instances"] == [[2**32 - 1] * 2] * 2  # not available


async def test_what_else_the_driver_says_of_a_process_stays_as_it_is(container: Container) -> None:
    told = await run(
        container,
        """
occupy(COMPUTE, own, beside)
entries, count = (Second * 2)(), UINT(2)
assert management.nvmlDeviceGetComputeRunningProcesses_v2(gpu, ctypes.byref(count), entries) == 0
asked = DetailList(ctypes.sizeof(DetailList) | VERSION_1, COMPUTE, 2, (Detail * 2)())
assert management.nvmlDeviceGetRunningProcessDetailList(gpu, ctypes.byref(asked)) == 0
fields = ["instance", "part"]
tell(lists=[rows(entries, 2, fields), rows(asked.list, 2, [*fields, "protected"])])
""",
    )

    assert told["lists"] == [[[3, 4]] * 2, [[3, 4, 77]] * 2]


async def test_an_array_too_short_is_told_the_length_and_left_alone(container: Container) -> None:
    told = await run(
        container,
        """
occupy(COMPUTE, *range(foreign, foreign + 250), own, beside)
entries, count = (First * 2)(First(5, 6), First(7, 8)), UINT(1)
short = management.nvmlDeviceGetComputeRunningProcesses(gpu, ctypes.byref(count), entries)
needed, untouched = count.value, rows(entries, 2, ["pid", "memory"])
exact = management.nvmlDeviceGetComputeRunningProcesses(gpu, ctypes.byref(count), entries)
tell(own=own, short=short, needed=needed, untouched=untouched, exact=exact, count=count.value,
     rows=rows(entries, 2, ["pid", "memory"]))
""",
    )

    assert (told["short"], told["needed"], told["untouched"]) == (7, 2, [[5, 6], [7, 8]])
    assert (told["exact"], told["count"]) == (0, 2)
    assert told["rows"] == [[told["own"], 2 * MIB], [1, 4 * MIB]]


async def test_on_a_gpu_of_others_no_foreign_process_shows(container: Container) -> None:
    told = await run(
        container,
        """
occupy(COMPUTE, foreign, own)
tell(own=own, seen=processes(management, COMPUTE, "_v3", other_gpu))
""",
    )

    assert told["seen"] == [7, 1, 0, [[told["own"], 5 * MIB]]]  # the driver's own figure


async def test_utilisation_is_the_drivers_of_the_containers_processes(container: Container) -> None:
    told = await run(
        container,
        """
occupy(COMPUTE, foreign, beside, foreign + 1, own)
tell(own=own, seen=[samples(management, gpu), longer_samples(management, gpu)])
""",
    )

    assert told["seen"] == [[7, 2, 0, [[1, 1], [told["own"], 3]]]] * 2


async def test_where_only_others_used_the_gpu_no_utilisation_is_found(container: Container) -> None:
    told = await run(
        container,
        """
occupy(COMPUTE, foreign)
tell(seen=[answer[0:3:2] for answer in (samples(management, gpu), longer_samples(management, gpu))])
""",
    )

    assert told["seen"] == [[6, 6], [6, 6]]


async def test_accounts_are_those_of_the_containers_processes(container: Container) -> None:
    told = await run(
        container,
        """
occupy(ACCOUNTED, foreign, beside, own)
tell(own=own, beside=beside, pids=accounted(management, gpu),
     stats=[account(management, gpu, pid) for pid in (1, own, foreign)])
""",
    )

    assert told["pids"] == [1, told["own"]]
    assert told["stats"] == [[0, told["beside"]], [0, told["own"]], [6, 0]]


async def test_where_the_driver_translates_pids_it_is_asked_for_accounts_by_those(
    container: Container,
) -> None:
    told = await run(
        container,
        """
occupy(ACCOUNTED, 1, own)
tell(own=own, stats=[account(management, gpu, pid) for pid in (1, own, beside)])
""",
    )

    assert told["stats"] == [[0, 1], [0, told["own"]], [6, 0]]


async def test_lists_of_an_unknown_version_are_refused(container: Container) -> None:
    told = await run(
        container,
        """
occupy(COMPUTE, own, foreign)
newer, samples = DetailList(24 | 2 << 24, COMPUTE), SampleList(24 | 2 << 24)
tell(results=[management.nvmlDeviceGetRunningProcessDetailList(gpu, ctypes.byref(newer)),
              management.nvmlDeviceGetProcessesUtilizationInfo(gpu, ctypes.byref(samples))],
     counts=[newer.count, samples.count])
""",
    )

    assert told == {"results": [25, 25], "counts": [0, 0]}


async def test_the_window_to_device_memory_is_as_large_and_as_full_as_the_containers_memory(
    container: Container,
) -> None:
    told = await run(
        container,
        """
memory = (ctypes.c_ulonglong * 3)()
results = [[management.nvmlDeviceGetBAR1MemoryInfo(device, memory), *memory]
           for device in (gpu, other_gpu)]
tell(results=results)
""",
    )

    assert told["results"] == [
        [0, 64 * MIB, 58 * MIB, 6 * MIB],  # of the container's 64 MiB, 2 and 4 are held
        [0, 128 * MIB, 120 * MIB, 8 * MIB],
    ]


async def test_without_an_allocation_every_list_is_the_drivers(container: Container) -> None:
    told = await Container(container.libraries, None, container.work).run(
        f"""
{PRELUDE}
occupy(COMPUTE, 1, foreign)
occupy(ACCOUNTED, foreign)
tell(seen=[processes(management, COMPUTE, version, gpu) for version in VERSIONS],
     details=details(management, COMPUTE, gpu), samples=samples(management, gpu),
     longer=longer_samples(management, gpu), pids=accounted(management, gpu),
     stats=account(management, gpu, foreign))
"""
    )

    listed = [7, 2, 0, [[1, 5 * MIB], [FOREIGN, 5 * MIB]]]
    assert told["seen"] == [listed] * 3
    assert told["details"] == listed
    assert told["samples"] == told["longer"] == [7, 2, 0, [[1, 0], [FOREIGN, 1]]]
    assert (told["pids"], told["stats"]) == ([FOREIGN], [0, FOREIGN])
