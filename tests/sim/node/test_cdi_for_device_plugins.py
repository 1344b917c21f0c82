"""Extended resources handed over as CDI devices, on runtimes with and without CDI."""

import pytest

from gpumanager.sim import events
from gpumanager.sim.container_runtime import CONTAINERD_1_6
from gpumanager.sim.machines import load_machine
from gpumanager.sim.node import SimulatedNode
from gpumanager.units import GIB
from tests.dra.node_of_claims import WaitingForNobody
from tests.sim.node.test_node import container, pod
from tests.waiting import until

pytestmark = pytest.mark.namespaces
FLAGS = {"device-plugin-cdi": "true"}


async def test_shares_and_whole_gpus_come_by_cdi_and_are_held_all_the_same() -> None:
    printed: list[str] = []

    def saw(event: events.Event) -> None:
        if isinstance(event, events.ContainerPrinted):
            printed.append(event.line)

    fill = ("cuda-play", "allocate", "--block", "100MiB", "--until-refused")
    share = pod(container(*fill), name="share")
    whole = pod(container("cuda-play", "query", cores=200, blocks=0), name="whole")
    async with SimulatedNode(load_machine("t4x4"), agent_flags=FLAGS, on_event=saw) as node:
        for one in (share, whole):
            await node.admit(one)
        answers = [await node.kubelet.prepare(one, one.containers[0]) for one in (share, whole)]
        files = sorted(path.name for path in node.disk.cdi[1].iterdir())
        held, seen = [(await node.runner.run(one))[0] for one in (share, whole)]

    assert [(one.mounts, one.devices) for one in answers] == [((), ())] * 2
    names = [one.cdi_devices[0].partition("=")[2] for one in answers]
    assert files == sorted(f"gpu.tencent.com-allocation_{name}.json" for name in names)
    assert (held.exit_code, seen.exit_code) == (0, 0)
    assert held.memory_limit == GIB
    assert held.measured.memory_denied > 0
    assert held.measured.memory_peak <= GIB
    assert any("2 devices" in line for line in printed)


async def test_with_a_runtime_that_ignores_cdi_nothing_is_offered() -> None:
    """Containers would start without their GPU, and without their limit."""
    node = WaitingForNobody(load_machine("single"), agent_flags=FLAGS, runtime=CONTAINERD_1_6)
    async with node:
        await until(lambda: "enable_cdi" in node.disk.agent_log.read_text())

        assert "without --device-plugin-cdi" in node.disk.agent_log.read_text()
        assert not node.kubelet.books.registered
