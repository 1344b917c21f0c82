"""The doctor on GPUs that are ill: the real one over simulated NVML."""

import json
import sys

from gpu_faults import SimulatedFaults

from tests.native.sim_box import SimBox, machine, sim_box


def about_gpus(box: SimBox) -> list[dict[str, str]]:
    doctor = [sys.executable, "-m", "gpumanager", "doctor", "--json"]
    printed = box.run([*doctor, "--device-directory", str(box.gpus.device_directory)]).stdout
    return [row for row in json.loads(printed)["findings"] if row["part"] == "GPUs"]


def test_each_gpu_that_is_ill_beside_one_that_is_not_is_a_finding() -> None:
    with sim_box(machine(4)) as box:
        lost, worn, waiting, _ = (gpu.uuid for gpu in box.machine.topology.gpus)
        faults = SimulatedFaults(box.gpus)
        faults.lose(lost)
        faults.remap(worn, failed=True)
        faults.remap(waiting, pending=True)

        rows = about_gpus(box)

    assert sorted(row["verdict"] for row in rows) == ["note", "well", "wrong", "wrong"]
    for verdict, said in (
        ("wrong", "fallen off the bus"),
        ("wrong", "no memory row is left"),
        ("note", "at the next reset"),
    ):
        assert [1 for row in rows if row["verdict"] == verdict and said in row["found"]] == [1]
