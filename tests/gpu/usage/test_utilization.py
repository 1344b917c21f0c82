"""How busy processes keep GPUs: the real adapter on the simulated NVML, and NVML's odd answers."""

import json
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from harness.utilization import SimulatedUtilization

from gpumanager.gpu.usage.nvml_pass import NvmlPasses, NvmlQuery
from gpumanager.gpu.usage.samples import UtilizationByGpu
from gpumanager.sim.machine import IDEAL
from tests import ROOT
from tests.gpu.nvml_answers import answers, refuse, sampled
from tests.native.sim_box import SimBox, machine, sim_box

SAMPLED = 0.02
"""Seconds by which two views of one period may differ."""

WATCH = ROOT / "tests/gpu/programs/nvml_utilization.py"

Row = tuple[str, int, float, int]


def rows(answers: UtilizationByGpu) -> list[Row]:
    return [
        (gpu, sample.pid, sample.ended_ns / 1e9, sample.percent)
        for gpu, answer in answers.items()
        for sample in answer.samples or ()
    ]


def watch(meter: Callable[[], UtilizationByGpu], until: "Future[Any]") -> list[Row]:
    found: list[Row] = []
    while not until.done():
        found += rows(meter())
        time.sleep(0.02)
    return found


def busy_box(box: SimBox) -> set[tuple[str, int]]:
    """Programs that keep both GPUs busy for a long while: GPU and pid."""
    used = set()
    for index, gpu in enumerate(box.machine.topology.gpus):
        client = box.client()
        client(f"init({index})")
        client("spin(600_000_000_000)")
        used.add((str(gpu.uuid), client.pid))
    return used


def test_every_process_is_sampled_on_the_gpu_that_it_uses() -> None:
    with sim_box(machine(2)) as box:
        used = busy_box(box)
        time.sleep(0.4)

        found = [tuple(row) for row in json.loads(box.program(WATCH))]

    whole = [row for row in found if row[3] == 100]
    assert {(gpu, pid) for gpu, pid, _, _ in found} == used
    assert len(whole) > 4
    assert all(abs(time.monotonic() - end) < 600 for _, _, end, _ in found)


def test_the_simulated_gpus_tell_what_their_nvml_tells() -> None:
    with sim_box(replace(machine(2), driver=IDEAL)) as box:
        used = busy_box(box)
        time.sleep(0.4)
        with ThreadPoolExecutor(1) as thread:
            theirs = thread.submit(lambda: json.loads(box.program(WATCH)))
            ours = watch(SimulatedUtilization(box.gpus, time.monotonic_ns), theirs)

    common = [
        (mine[3], other[3])
        for mine in ours
        for other in theirs.result()
        if [*mine[:2]] == other[:2] and abs(mine[2] - other[2]) < SAMPLED
    ]
    assert {(gpu, pid) for gpu, pid, _, _ in ours} == used
    assert len(common) > 4
    assert all(mine == other for mine, other in common)


def test_simulated_samples_are_told_once() -> None:
    with sim_box(machine(1)) as box:
        busy_box(box)
        time.sleep(0.4)
        meter = SimulatedUtilization(box.gpus, time.monotonic_ns)
        with ThreadPoolExecutor(1) as thread:
            ends = [end for _, _, end, _ in watch(meter, thread.submit(time.sleep, 0.8))]

    assert len(ends) > 2
    assert all(b - a > SAMPLED for a, b in pairwise(ends))


SAMPLES = NvmlQuery(samples=None)


@dataclass(frozen=True, slots=True)
class Sampled:
    """A row as NVML has it. age: seconds before now."""

    pid: int
    smUtil: int  # noqa: N815 - as pynvml calls it
    age: float = 0.1

    @property
    def timeStamp(self) -> int:  # noqa: N802
        return round((time.time() - self.age) * 1e6)


def nvml(patch: pytest.MonkeyPatch, **functions: Callable[..., Any]) -> None:
    """One GPU, with one busy process."""
    usual: dict[str, Callable[..., Any]] = {
        "DeviceGetCount": lambda: 1,
        "DeviceGetProcessUtilization": lambda *_: [Sampled(7, 42)],
    }
    answers(patch, **(usual | functions))


def told(passes: NvmlPasses) -> dict[str, list[tuple[int, int]] | None]:
    return {
        gpu: None if one.samples is None else [(s.pid, s.percent) for s in one.samples]
        for gpu, one in passes(SAMPLES).samples.items()
    }


def test_a_sample_has_the_time_of_the_clock_that_everybody_shares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml(monkeypatch)

    (answer,) = sampled().values()

    assert answer.samples is not None
    assert abs(answer.asked_ns - answer.samples[0].ended_ns - 100_000_000) < 50_000_000
    assert abs(time.monotonic_ns() - answer.asked_ns) < 5_000_000_000


@pytest.mark.parametrize(
    "code",
    [
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_PERMISSION,
    ],
)
def test_where_one_function_is_not_known_the_other_is_asked(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    nvml(
        monkeypatch,
        DeviceGetProcessUtilization=refuse(code),
        DeviceGetProcessesUtilizationInfo=lambda *_: [Sampled(8, 7)],
    )

    assert told(NvmlPasses()) == {"GPU-0": [(8, 7)]}


def test_a_gpu_that_never_tells_is_told_from_one_that_nobody_uses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml(monkeypatch, DeviceGetProcessUtilization=refuse(pynvml.NVML_ERROR_NOT_SUPPORTED))
    assert told(NvmlPasses()) == {"GPU-0": None}

    nvml(monkeypatch, DeviceGetProcessUtilization=refuse(pynvml.NVML_ERROR_NOT_FOUND))
    assert told(NvmlPasses()) == {"GPU-0": []}

    nvml(monkeypatch, DeviceGetProcessUtilization=refuse(pynvml.NVML_SUCCESS))
    assert told(NvmlPasses()) == {"GPU-0": []}


def test_the_instances_of_a_split_gpu_are_asked_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml(
        monkeypatch,
        DeviceGetMigMode=lambda _: (1, 1),
        DeviceGetMaxMigDeviceCount=lambda _: 2,
        DeviceGetMigDeviceHandleByIndex=lambda _, index: f"MIG-{index}",
        DeviceGetProcessUtilization=refuse(pynvml.NVML_ERROR_NOT_SUPPORTED),
    )

    assert told(NvmlPasses()) == {"MIG-0": None, "MIG-1": None}


@pytest.mark.parametrize(("told_busy", "busy"), [(77, 77), (101, None), (None, None)])
def test_how_busy_the_gpu_was_at_all_is_told_where_it_is_known(
    monkeypatch: pytest.MonkeyPatch, told_busy: int | None, busy: int | None
) -> None:
    refused = refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    rates = refused if told_busy is None else lambda _: SimpleNamespace(gpu=told_busy)
    nvml(monkeypatch, DeviceGetUtilizationRates=rates)

    (answer,) = sampled().values()

    assert answer.busy == busy


def test_a_gpu_that_is_lost_is_left_out_and_the_others_are_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def question(handle: str, _stamp: int) -> list[Sampled]:
        if handle == "GPU-0":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return [Sampled(7, 42)]

    nvml(monkeypatch, DeviceGetCount=lambda: 2, DeviceGetProcessUtilization=question)

    assert told(NvmlPasses()) == {"GPU-1": [(7, 42)]}


@pytest.mark.parametrize(
    "row",
    [
        Sampled(7, 101),
        Sampled(7, 2**32 - 1),
        Sampled(0, 40),
        Sampled(7, 40, age=3600.0),
        Sampled(7, 40, age=-3600.0),
    ],
)
def test_rows_that_cannot_be_are_dropped(monkeypatch: pytest.MonkeyPatch, row: Sampled) -> None:
    nvml(monkeypatch, DeviceGetProcessUtilization=lambda *_: [row, Sampled(8, 5)])

    assert told(NvmlPasses()) == {"GPU-0": [(8, 5)]}


def test_only_what_is_newer_than_the_newest_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    newest = Sampled(7, 5).timeStamp

    @dataclass
    class Fixed:
        pid: int
        smUtil: int  # noqa: N815
        timeStamp: int  # noqa: N815

    def question(_handle: str, stamp: int) -> list[Fixed]:
        asked.append(stamp)
        return [Fixed(7, 5, newest), Fixed(8, 6, newest - 10)]

    nvml(monkeypatch, DeviceGetProcessUtilization=question)
    meter = NvmlPasses()

    assert told(meter) == {"GPU-0": [(7, 5), (8, 6)]}
    assert told(meter) == {"GPU-0": []}
    assert asked[1:] == [newest]


def test_a_clock_that_is_set_back_does_not_end_the_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml(monkeypatch)
    meter = NvmlPasses()
    told(meter)
    real, behind = time.time_ns, 3600 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: real() - behind)
    nvml(monkeypatch, DeviceGetProcessUtilization=lambda *_: [Sampled(7, 42, age=3600.1)])

    assert told(meter) == {"GPU-0": [(7, 42)]}


def test_a_process_that_comes_between_count_and_list_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[int] = []

    def question(_handle: str, _stamp: int) -> list[Sampled]:
        tries.append(1)
        if len(tries) == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        return [Sampled(7, 42)]

    nvml(monkeypatch, DeviceGetProcessUtilization=question)

    assert told(NvmlPasses()) == {"GPU-0": [(7, 42)]}
