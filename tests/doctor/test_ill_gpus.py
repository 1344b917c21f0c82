"""The doctor on GPUs that are ill: the real one over simulated NVML."""

import json
import sys
from collections.abc import Callable, Iterator

import pytest
from gpu_faults import SimulatedFaults

from gpumanager.gpu.values import GpuUUID
from tests.native.sim_box import SimBox, machine, sim_box

Harm = Callable[[SimulatedFaults, GpuUUID], None]

HARMS: dict[str, tuple[Harm, str, str]] = {
    "lost": (lambda faults, gpu: faults.lose(gpu), "wrong", "fallen off the bus"),
    "remap failed": (
        lambda faults, gpu: faults.remap(gpu, failed=True), "wrong", "no memory row is left",
    ),
    "remap pending": (
        lambda faults, gpu: faults.remap(gpu, pending=True), "note", "at the next reset",
    ),
}  # fmt: skip


@pytest.fixture
def box() -> Iterator[SimBox]:
    with sim_box(machine(2)) as found:
        yield found


def about_gpus(box: SimBox) -> list[tuple[str, str]]:
    """Verdicts, and what was found."""
    doctor = [sys.executable, "-m", "gpumanager", "doctor", "--json"]
    printed = box.run([*doctor, "--device-directory", str(box.gpus.device_directory)]).stdout
    rows = json.loads(printed)["findings"]
    return [(row["verdict"], row["found"]) for row in rows if row["part"] == "GPUs"]


def test_gpus_that_are_well_are_listed_and_no_more(box: SimBox) -> None:
    assert [verdict for verdict, _ in about_gpus(box)] == ["well"]


@pytest.mark.parametrize("harm", HARMS)
def test_a_gpu_that_is_ill_beside_one_that_is_not_is_a_finding(box: SimBox, harm: str) -> None:
    do, verdict, said = HARMS[harm]
    do(SimulatedFaults(box.gpus), box.uuid)

    found = about_gpus(box)

    assert len([one for one, text in found if one == verdict and said in text]) == 1
