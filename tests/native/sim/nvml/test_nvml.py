"""The simulated libnvidia-ml through NVIDIA's own nvidia-ml-py."""

import itertools
import json
import time
from dataclasses import replace

import pytest

from gpumanager.sim.machine import REAL, UtilizationSamples
from gpumanager.sim.machines import load_machine, machine_names
from gpumanager.units import GIB
from tests.native.sim_box import SimBox, machine, sim_box

LOOK = """
import json, time, pynvml
from pynvml import *
def newer(handle, stamp):
    try:
        rows = nvmlDeviceGetProcessUtilization(handle, stamp)
        return [row for row in rows if row.timeStamp > stamp]
    except NVMLError_NotFound:
        return []
nvmlInit()
handles = [nvmlDeviceGetHandleByIndex(i) for i in range(nvmlDeviceGetCount())]
h = handles[0]
print(json.dumps({}))
nvmlShutdown()
"""


def look(box: SimBox, expression: str) -> object:
    return json.loads(box.python(LOOK.replace("{}", expression)))


def test_gpus_are_listed_by_index_with_what_identifies_them(box: SimBox) -> None:
    seen = look(
        box,
        "[[nvmlDeviceGetName(x), nvmlDeviceGetUUID(x), nvmlDeviceGetPciInfo(x).busId,"
        " nvmlDeviceGetMinorNumber(x), nvmlDeviceGetIndex(x)] for x in handles]",
    )

    gpus = box.machine.topology.gpus
    assert seen == [["Tesla T4", gpu.uuid, gpu.bus_id, gpu.minor, gpu.index] for gpu in gpus]


def test_a_gpu_is_found_by_uuid_and_by_bus_id(box: SimBox) -> None:
    gpu = box.machine.topology.gpus[1]

    assert look(
        box,
        f"[nvmlDeviceGetIndex(nvmlDeviceGetHandleByUUID('{gpu.uuid}')),"
        f" nvmlDeviceGetIndex(nvmlDeviceGetHandleByPciBusId('{gpu.bus_id}')),"
        f" nvmlDeviceGetIndex(nvmlDeviceGetHandleByPciBusId('{gpu.bus_id[4:].lower()}'))]",
    ) == [1, 1, 1]


def test_versions_are_the_machines(box: SimBox) -> None:
    assert look(
        box,
        "[nvmlSystemGetDriverVersion(), nvmlSystemGetCudaDriverVersion(),"
        " nvmlDeviceGetCudaComputeCapability(h), nvmlDeviceGetArchitecture(h)]",
    ) == ["555.58.02", 12050, [7, 5], 6]


def test_memory_and_processes_are_those_of_the_shared_state(box: SimBox) -> None:
    one, other = box.client(), box.client()
    one("[init(), alloc(3 << 30)]")
    other("[init(), alloc(1 << 30)]")

    seen = look(
        box,
        "[nvmlDeviceGetMemoryInfo(h).used, nvmlDeviceGetMemoryInfo(h, version=nvmlMemory_v2).used,"
        " nvmlDeviceGetMemoryInfo(h).total,"
        " {p.pid: p.usedGpuMemory for p in nvmlDeviceGetComputeRunningProcesses(h)},"
        " nvmlDeviceGetComputeRunningProcesses(handles[1])]",
    )

    held = {str(one.pid): 3 * GIB, str(other.pid): GIB}
    assert seen == [4 * GIB, 4 * GIB, 16 * GIB, held, []]


def test_every_version_of_the_process_list_agrees(box: SimBox) -> None:
    client = box.client()
    client("[init(), alloc(5 << 20)]")

    seen = look(
        box,
        "[[p.pid, p.usedGpuMemory] for f in (nvmlDeviceGetComputeRunningProcesses_v2,"
        " nvmlDeviceGetComputeRunningProcesses_v3) for p in f(h)]",
    )

    assert seen == [[client.pid, 5 << 20]] * 2


def test_the_second_memory_struct_needs_its_version(box: SimBox) -> None:
    code = box.python(
        "import ctypes\n"
        "nvml = ctypes.CDLL('libnvidia-ml.so.1')\n"
        "h = ctypes.c_void_p()\n"
        "assert nvml.nvmlInit() == nvml.nvmlDeviceGetHandleByIndex(0, ctypes.byref(h)) == 0\n"
        "print(nvml.nvmlDeviceGetMemoryInfo_v2(h, (ctypes.c_uint * 10)(1)))"
    )

    assert code.strip() == "25"


def test_utilisation_is_that_of_the_last_sample_period(box: SimBox) -> None:
    client = box.client()
    client("init()")
    idle = look(box, "nvmlDeviceGetUtilizationRates(h).gpu")
    client("spin(600_000_000_000)")

    seen = box.python(
        "from pynvml import *\n"
        "import time\n"
        "nvmlInit()\n"
        "h = nvmlDeviceGetHandleByIndex(0)\n"
        "end = time.monotonic() + 10\n"
        "while nvmlDeviceGetUtilizationRates(h).gpu < 100 and time.monotonic() < end:\n"
        "    pass\n"
        "sample, = nvmlDeviceGetProcessUtilization(h, 0)\n"
        "print(nvmlDeviceGetUtilizationRates(h).gpu, sample.pid, sample.smUtil,"
        " 0 <= time.time() - sample.timeStamp / 1e6 < 10)\n"
    )

    assert idle == 0
    assert seen == f"100 {client.pid} 100 True\n"


def test_each_period_has_one_sample_whose_stamp_stays(box: SimBox) -> None:
    client = box.client()
    client("[init(), spin(600_000_000_000)]")

    seen = look(
        box,
        "(lambda found: [found.append(s.timeStamp) for x in iter(lambda: len(found) < 4, False)"
        " for s in newer(h, found[-1] if found else 0)] and found)([])",
    )

    assert isinstance(seen, list)
    steps = [later - earlier for earlier, later in itertools.pairwise(seen)]
    assert all(round(step * 6 / 1e6) * 166_667 - step in range(-9, 10) for step in steps)


def test_nvml_tells_what_the_account_tells_where_a_sample_names_one_process() -> None:
    described = replace(machine(1), driver=REAL)
    with sim_box(described) as box:
        for client in (box.client(), box.client()):
            client("[init(), spin(600_000_000_000)]")
        time.sleep(0.5)

        def told() -> list[list[int]]:
            rows = box.gpus.utilization(box.uuid, 0)
            assert rows is not None
            return [[row.pid, row.percent, row.sampled_ns // 1_000_000] for row in rows]

        before, after, seen = [[0]], [[1]], None
        while before != after:  # or a sample period ended meanwhile
            before = told()
            seen = look(
                box,
                "[[s.pid, s.smUtil, int((s.timeStamp - (time.time() - time.monotonic()) * 1e6)"
                " / 1000)] for s in newer(h, 0)]",
            )
            after = told()

    assert isinstance(seen, list)
    assert [row[:2] for row in seen] == [row[:2] for row in before]
    assert all(abs(a[2] - b[2]) <= 1 for a, b in zip(seen, before, strict=True))


def test_nvml_says_that_a_driver_without_samples_has_none() -> None:
    with sim_box(replace(machine(1), driver=replace(REAL, samples=UtilizationSamples.NONE))) as box:
        box.client()("[init(), spin(600_000_000_000)]")
        answer = box.python(
            "from pynvml import *\n"
            "nvmlInit()\n"
            "try:\n"
            "    nvmlDeviceGetProcessUtilization(nvmlDeviceGetHandleByIndex(0), 0)\n"
            "except NVMLError_NotSupported:\n"
            "    print('not supported')\n"
        )

    assert answer == "not supported\n"


def test_without_newer_samples_utilisation_of_processes_is_not_found(box: SimBox) -> None:
    answer = box.python(
        "from pynvml import *\n"
        "nvmlInit()\n"
        "try:\n"
        "    nvmlDeviceGetProcessUtilization(nvmlDeviceGetHandleByIndex(0), 0)\n"
        "except NVMLError_NotFound:\n"
        "    print('not found')\n"
    )

    assert answer == "not found\n"


def test_processes_without_newer_samples_are_listed_with_old_ones(box: SimBox) -> None:
    clients = [box.client() for _ in range(2)]
    for client in clients:
        client("init()")

    rows = look(
        box,
        "[[s.pid, s.smUtil, s.timeStamp] for s in"
        " nvmlDeviceGetProcessUtilization(h, (int(time.time()) + 3600) * 10**6)]",
    )

    assert rows == [[client.pid, 0, 0] for client in clients]


def test_levels_and_numa_nodes_are_the_machines() -> None:
    with sim_box(machine(4)) as box:
        seen = look(
            box,
            "[[nvmlDeviceGetTopologyCommonAncestor(h, x) for x in handles[1:]],"
            " [nvmlDeviceGetNumaNodeId(x) for x in handles]]",
        )

    assert seen == [[10, 50, 50], [0, 0, 1, 1]]


LINKS = """
import json
from pynvml import *
nvmlInit()
def links(handle):
    ends = []
    for link in range(NVML_NVLINK_MAX_LINKS):
        try:
            assert nvmlDeviceGetNvLinkState(handle, link) == 1
        except (NVMLError_NotSupported, NVMLError_InvalidArgument) as error:
            return [*ends, type(error).__name__]
        kind = nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
        bus_id = nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId
        ends.append([kind, bus_id if kind == 0 else ""])
    return ends
print(json.dumps(links(nvmlDeviceGetHandleByIndex(0))))
"""


@pytest.mark.parametrize(
    ("count", "nvlinks", "ends"),
    [
        (2, 0, ["NVMLError_NotSupported"]),
        (2, 2, [[0, "00000000:11:00.0"]] * 2 + ["NVMLError_InvalidArgument"]),
        (4, 12, [[2, ""]] * 12 + ["NVMLError_InvalidArgument"]),
    ],
)
def test_nvlinks_end_at_gpus_or_where_all_are_joined_alike_at_switches(
    count: int, nvlinks: int, ends: list[object]
) -> None:
    with sim_box(machine(count, nvlinks=nvlinks)) as box:
        assert json.loads(box.python(LINKS)) == ends


@pytest.mark.parametrize("name", machine_names())
def test_the_node_agents_own_discovery_finds_how_a_machine_s_gpus_are_joined(name: str) -> None:
    with sim_box(load_machine(name)) as box:
        found = box.python("from gpumanager.gpu.nvml import discover_here\nprint(discover_here())")

        assert found == f"{box.machine.topology}\n"


def test_the_node_agents_own_discovery_finds_the_machine_again() -> None:
    with sim_box(machine(4, nvlinks=4)) as box:
        found = box.python(
            "from gpumanager.gpu.nvml import discover_here\n"
            "from tests.native.sim_box import machine\n"
            "from dataclasses import replace\n"
            "wanted = machine(4, nvlinks=4).topology\n"
            "found = discover_here()\n"
            "assert found.bonds == wanted.bonds, found.bonds\n"
            "for one, other in zip(found.gpus, wanted.gpus, strict=True):\n"
            "    assert replace(one, model='T4', numa_node=other.numa_node) == other, one\n"
            "print('same')\n",
        )

    assert found == "same\n"
