"""Who is on a GPU, as NVML behind the shim says it: the container's own processes.

Each program holds 2 MiB, a page; its neighbour, which calls itself 1 in a pid namespace of its own,
holds 4 MiB. What the driver lists is up to the test.
"""

from collections.abc import Mapping
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


def named(answer: Any, names: Mapping[int, str]) -> Any:
    if isinstance(answer, dict):
        return {key: named(one, names) for key, one in answer.items()}
    if isinstance(answer, list):
        return [named(one, names) for one in answer]
    return names.get(answer, answer)


async def run(container: Container, script: str) -> dict[str, Any]:
    """The script, with a neighbour at hand, whose host pid is `beside`. In what it tells these two
    are words; a figure that is one of them by chance would be, too."""
    lines = "\n".join(f"    {line}" for line in script.strip().splitlines())
    told = await container.run(
        f"{PRELUDE}\nwith neighbour({4 * MIB}) as beside:\n{lines}\n    tell(names=[own, beside])\n"
    )
    own, beside = told.pop("names")
    renamed: dict[str, Any] = named(told, {own: "own", beside: "beside"})
    return renamed


RULES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "what else the driver says of a process stays as it is": (
        """
occupy(COMPUTE, own, beside)
entries, count = (Second * 2)(), UINT(2)
assert management.nvmlDeviceGetComputeRunningProcesses_v2(gpu, ctypes.byref(count), entries) == 0
asked = DetailList(ctypes.sizeof(DetailList) | VERSION_1, COMPUTE, 2, (Detail * 2)())
assert management.nvmlDeviceGetRunningProcessDetailList(gpu, ctypes.byref(asked)) == 0
fields = ["instance", "part"]
tell(lists=[rows(entries, 2, fields), rows(asked.list, 2, [*fields, "protected"])])
""",
        {"lists": [[[3, 4]] * 2, [[3, 4, 77]] * 2]},
    ),
    "an array too short is told the length and left alone": (
        """
occupy(COMPUTE, *range(foreign, foreign + 250), own, beside)
entries, count = (First * 2)(First(5, 6), First(7, 8)), UINT(1)
short = management.nvmlDeviceGetComputeRunningProcesses(gpu, ctypes.byref(count), entries)
needed, untouched = count.value, rows(entries, 2, ["pid", "memory"])
exact = management.nvmlDeviceGetComputeRunningProcesses(gpu, ctypes.byref(count), entries)
tell(short=short, needed=needed, untouched=untouched, exact=exact, count=count.value,
     rows=rows(entries, 2, ["pid", "memory"]))
""",
        {
            "short": 7,
            "needed": 2,
            "untouched": [[5, 6], [7, 8]],
            "exact": 0,
            "count": 2,
            "rows": [["own", 2 * MIB], [1, 4 * MIB]],
        },
    ),
    "on a GPU of others no foreign process shows": (
        """
occupy(COMPUTE, foreign, own)
tell(seen=processes(management, COMPUTE, "_v3", other_gpu))
""",
        {
            "seen": [7, 1, 0, [["own", 5 * MIB]]],  # the driver's own figure
        },
    ),
    "utilisation is the driver's of the container's processes": (
        """
occupy(COMPUTE, foreign, beside, foreign + 1, own)
tell(seen=[samples(management, gpu), longer_samples(management, gpu)])
""",
        {"seen": [[7, 2, 0, [[1, 1], ["own", 3]]]] * 2},
    ),
    "where only others used the GPU no utilisation is found": (
        """
occupy(COMPUTE, foreign)
tell(seen=[answer[0:3:2] for answer in (samples(management, gpu), longer_samples(management, gpu))])
""",
        {"seen": [[6, 6], [6, 6]]},
    ),
    "accounts are those of the container's processes": (
        """
occupy(ACCOUNTED, foreign, beside, own)
tell(pids=accounted(management, gpu),
     stats=[account(management, gpu, pid) for pid in (1, own, foreign)])
""",
        {"pids": [1, "own"], "stats": [[0, "beside"], [0, "own"], [6, 0]]},
    ),
    "where the driver translates pids it is asked for accounts by those": (
        """
occupy(ACCOUNTED, 1, own)
tell(stats=[account(management, gpu, pid) for pid in (1, own, beside)])
""",
        {"stats": [[0, 1], [0, "own"], [6, 0]]},
    ),
    "lists of an unknown version are refused": (
        """
occupy(COMPUTE, own, foreign)
newer, samples = DetailList(24 | 2 << 24, COMPUTE), SampleList(24 | 2 << 24)
tell(results=[management.nvmlDeviceGetRunningProcessDetailList(gpu, ctypes.byref(newer)),
              management.nvmlDeviceGetProcessesUtilizationInfo(gpu, ctypes.byref(samples))],
     counts=[newer.count, samples.count])
""",
        {"results": [25, 25], "counts": [0, 0]},
    ),
    "the window to device memory is as large and as full as the container's memory": (
        """
memory = (ctypes.c_ulonglong * 3)()
results = [[management.nvmlDeviceGetBAR1MemoryInfo(device, memory), *memory]
           for device in (gpu, other_gpu)]
tell(results=results)
""",
        {
            "results": [
                [0, 64 * MIB, 58 * MIB, 6 * MIB],  # of the container's 64 MiB, 2 and 4 are held
                [0, 128 * MIB, 120 * MIB, 8 * MIB],
            ]
        },
    ),
}
"""The rule, a program, and what NVML tells it."""


@pytest.mark.parametrize("rule", RULES)
async def test_nvml_tells_of_the_containers_own_processes(container: Container, rule: str) -> None:
    script, expected = RULES[rule]

    assert await run(container, script) == expected


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
tell(seen=seen)
""",
    )

    expected = [7, 2, 0, [[1, 4 * MIB], ["own", 2 * MIB]]]
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
tell(seen=seen)
""",
    )

    expected = [7, 2, 0, [[1, 4 * MIB], ["own", 2 * MIB]]]
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
tell(seen=seen, instances=rows(entries, 2, ["instance", "part"]))
""",
    )

    both = [["own", 2 * MIB], [1, 4 * MIB]]
    for name, (sized, needed, filled, processes) in told["seen"].items():
        if name.startswith("0"):
            assert (sized, needed, filled) == (7, 2, 0)
            assert sorted(processes, key=str) == sorted(both, key=str)
        else:
            assert (sized, needed, filled, processes) == (0, 0, 0, [])
    assert told["instances"] == [[2**32 - 1] * 2] * 2  # not available


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
