"""How busy processes keep GPUs: the real adapter on the simulated NVML."""

import json
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import pairwise
from typing import Any

from harness.utilization import SimulatedUtilization

from gpumanager.gpu.usage.samples import UtilizationByGpu
from gpumanager.sim.machine import IDEAL
from tests import ROOT
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
        wait((until,), SAMPLED)
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


def test_every_process_is_sampled_on_its_gpu_as_simulated_gpus_tell_it_too() -> None:
    with sim_box(replace(machine(2), driver=IDEAL)) as box:
        used = busy_box(box)
        with ThreadPoolExecutor(1) as thread:
            program = thread.submit(lambda: json.loads(box.program(WATCH)))
            ours = watch(SimulatedUtilization(box.gpus, time.monotonic_ns), program)
            theirs: list[Row] = [(gpu, *rest) for gpu, *rest in program.result()]

    common = [
        (mine[3], other[3])
        for mine in ours
        for other in theirs
        if mine[:2] == other[:2] and abs(mine[2] - other[2]) < SAMPLED
    ]
    assert {row[:2] for row in ours} == {row[:2] for row in theirs} == used
    assert len([row for row in theirs if row[3] == 100]) > 2
    assert len(common) > 2
    assert all(mine == other for mine, other in common)
    assert all(abs(time.monotonic() - end) < 600 for _, _, end, _ in theirs)
    first = [end for gpu, _, end, _ in ours if gpu == ours[0][0]]
    assert all(b - a > SAMPLED for a, b in pairwise(first))  # each is told once
