"""The node agent's own discovery on the simulated libnvidia-ml of all machines there are."""

import pytest

from gpumanager.sim.machines import load_machine, machine_names
from tests.native.sim_box import sim_box


@pytest.mark.parametrize("name", machine_names())
def test_it_finds_how_a_machine_s_gpus_are_joined(name: str) -> None:
    with sim_box(load_machine(name)) as box:
        found = box.python("from gpumanager.gpu.nvml import discover_here\nprint(discover_here())")

        assert found == f"{box.machine.topology}\n"
