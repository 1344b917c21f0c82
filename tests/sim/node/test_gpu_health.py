"""GPUs that fall ill on a whole node: the real agent, its device plugin, a kubelet, containers."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from gpu_faults import FOREVER, SimulatedFaults

from gpumanager.gpu.values import Gpu
from gpumanager.kube.pod import ContainerKind
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.node import SimulatedNode
from gpumanager.units import blocks
from tests.waiting import until

pytestmark = pytest.mark.namespaces

BOUND = 120.0
SHORT = {"health-check-period": "0.1s", "health-recovery": "0.2s"}


@pytest.fixture
async def node() -> AsyncIterator[SimulatedNode]:
    async with SimulatedNode(load_machine("t4x4"), agent_flags=SHORT) as node:
        yield node


def faults(node: SimulatedNode) -> SimulatedFaults:
    return SimulatedFaults(node.gpus)


def gpus(node: SimulatedNode) -> tuple[Gpu, ...]:
    return node.machine.topology.gpus


def pod(name: str, *command: str, cores: int = 100) -> Pod:
    asks = {VCORE: cores, VMEMORY: 4} if cores < 100 else {VCORE: cores}
    return Pod("default", name, (ContainerManifest("main", ContainerKind.APP, command, asks=asks),))


async def healthy(node: SimulatedNode, cores: int) -> None:
    """Until the kubelet believes that so many cores, and the memory to go with them, are well."""
    memory = cores // 100 * blocks(gpus(node)[0].memory)
    wanted = (cores, memory)
    await until(lambda: capacity(node) == wanted, BOUND)


def capacity(node: SimulatedNode) -> tuple[int, int]:
    return node.kubelet.books.capacity(VCORE), node.kubelet.books.capacity(VMEMORY)


async def logged(node: SimulatedNode, words: str, times: int = 1) -> None:
    await until(lambda: node.disk.agent_log.read_text().count(words) >= times, BOUND)


async def test_one_gpu_falls_ill_no_pod_gets_it_and_it_comes_back(node: SimulatedNode) -> None:
    ill = gpus(node)[1]
    await logged(node, "registered")

    faults(node).remap(ill.uuid, failed=True)
    await healthy(node, 300)
    assert await node.admit(pod("four", "true", cores=400)) is not None
    (result,) = await node.run([pod("three", "true", cores=300)])
    assert ill.uuid not in {gpu.uuid for gpu in result.gpus}
    assert len(result.gpus) == 3

    faults(node).restore(ill.uuid)
    await healthy(node, 400)


async def test_an_xid_of_a_program_harms_nothing_and_one_of_the_gpu_does(
    node: SimulatedNode,
) -> None:
    await until_watched(node)

    faults(node).xid(gpus(node)[0].uuid, 31)
    faults(node).xid(gpus(node)[2].uuid, 79)

    await logged(node, f"{gpus(node)[2].uuid} is out of use: Xid 79")
    assert f"{gpus(node)[0].uuid} is out of use" not in node.disk.agent_log.read_text()
    await logged(node, f"{gpus(node)[2].uuid} is back in use")
    await healthy(node, 400)


async def until_watched(node: SimulatedNode) -> None:
    """Events before that are old: a memory error found by a probe says that the agent looks."""
    await logged(node, "registered")
    faults(node).remap(gpus(node)[3].uuid, pending=True)
    await logged(node, "next reset")


async def test_who_has_a_gpu_that_is_lost_keeps_it_and_runs_on(node: SimulatedNode) -> None:
    running = asyncio.create_task(
        node.run([pod("held", "cuda-work", "kernel=10ms for=3s", cores=100)])
    )
    await until(lambda: bool(node.gpus.processes()), BOUND)
    held = node.gpus.processes()[0].gpu

    faults(node).lose(held)
    await healthy(node, 300)
    (result,) = await running

    assert result.exit_code == 0
    assert [gpu.uuid for gpu in result.gpus] == [held]


async def test_a_gpu_that_is_gone_when_the_agent_starts_keeps_the_devices_that_pods_hold(
    node: SimulatedNode,
) -> None:
    running = pod("held", "sleep", "600", cores=30)
    assert await node.admit(running) is None
    held = next(gpu for gpu in gpus(node) if gpu.uuid in str(journal(node)))
    await node.agent.stop()

    faults(node).unplug(held.uuid)
    await node.start_agent()
    await healthy(node, 300)
    assert len(node.kubelet.books.registered[VCORE]) == 330

    faults(node).restore(held.uuid)
    await healthy(node, 400)
    assert len(node.kubelet.books.registered[VCORE]) == 400


def journal(node: SimulatedNode) -> str:
    return "".join(path.read_text() for path in node.disk.checkpoint.iterdir())


async def test_an_agent_that_starts_without_a_driver_registers_when_there_is_one(
    node: SimulatedNode,
) -> None:
    await node.agent.stop()
    node.kubelet.forget_devices()
    faults(node).unload()

    await node.agent.start(node.kubelet.http.endpoint)
    await logged(node, "no usable GPU yet, retrying")
    assert node.kubelet.books.capacity(VCORE) == 0
    faults(node).load()

    await healthy(node, 400)


async def test_an_agent_that_starts_while_nvml_hangs_can_be_stopped(node: SimulatedNode) -> None:
    await node.agent.stop()
    faults(node).slow(FOREVER)
    await node.agent.start(node.kubelet.http.endpoint)

    await logged(node, "discovering GPUs", times=2)
    assert await status_when_told_to_stop(node) == 0


async def status_when_told_to_stop(node: SimulatedNode) -> int | None:
    """The agent's exit status; -9 where SIGTERM was not enough."""
    process = node.agent._process
    await asyncio.wait_for(node.agent.stop(), BOUND)
    assert process is not None
    return process.returncode


async def test_while_nvml_hangs_pods_are_admitted_and_the_agent_ends_when_told(
    node: SimulatedNode,
) -> None:
    await until_watched(node)
    faults(node).slow(FOREVER)

    assert await node.admit(pod("one", "true", cores=30)) is None

    assert await status_when_told_to_stop(node) == 0
    assert "Traceback" not in node.disk.agent_log.read_text()


async def test_a_machine_without_topology_gets_a_flat_tree_and_says_so() -> None:
    async with SimulatedNode(load_machine("t4x4"), agent_flags=SHORT) as node:
        await node.agent.stop()
        faults(node).unsupported(topology=True, events=True, ecc=True)
        await node.start_agent()

        await logged(node, "reports no GPU topology")
        await logged(node, "├── GPU1")
        (result,) = await node.run([pod("two", "true", cores=200)])
        assert len(result.gpus) == 2
