"""What the simulated node's container runtime tells of the containers that run there."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gpumanager.kube.pod import ContainerKind
from gpumanager.limits.processes import find
from gpumanager.names import CONTAINER_VCUDA, VCORE, VMEMORY
from gpumanager.runtime.cri import ContainerRuntime
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.node import SimulatedNode
from tests.waiting import until

pytestmark = pytest.mark.namespaces

SLEEPER = ContainerManifest(
    "main", ContainerKind.APP, ("sleep", "60"), asks={VCORE: 30, VMEMORY: 4}
)

POD = Pod("default", "sleeper", (SLEEPER,))


@pytest.fixture
async def node() -> AsyncIterator[SimulatedNode]:
    async with SimulatedNode(load_machine("t4x4")) as node:
        yield node


@pytest.fixture
async def runtime(node: SimulatedNode) -> AsyncIterator[ContainerRuntime]:
    runtime = ContainerRuntime([node.disk.runtime])
    yield runtime
    await runtime.close()


async def test_a_running_container_leads_to_its_allocation_and_an_ended_one_to_nothing(
    node: SimulatedNode, runtime: ContainerRuntime
) -> None:
    await node.admit(POD)
    running = asyncio.create_task(node.runner.run(POD))
    async with asyncio.timeout(120):
        while not (found := await runtime.list()):  # noqa: ASYNC110 - it is asked, as an agent asks
            await asyncio.sleep(0.01)

    (live,) = found
    alloc = node.disk.virtual / "alloc"
    (name,) = [path.name for path in alloc.glob("[!.]*")]
    assert live.source(str(CONTAINER_VCUDA)) == str(alloc / name)
    assert live.envs["VCUDA_ALLOCATION"] == name
    assert live.annotations[VCORE] == "30"
    assert str(live.container) == "default/sleeper (main)"
    assert live.container.pod_uid == POD.uid
    assert find(live.pid) is not None

    node.kill_containers()
    await asyncio.wait_for(running, 120)
    assert await runtime.list() == ()


async def test_the_agent_says_which_runtime_it_found(node: SimulatedNode) -> None:
    """And the container's own process, which no cgroup names, is not turned away."""
    (result,) = await node.run([Pod("default", "user", (QUERY,))])
    line = f"container runtime: containerd 2.1.9 (CRI v1) at {node.disk.runtime}"

    assert result.exit_code == 0
    await until(lambda: line in node.disk.agent_log.read_text())


QUERY = ContainerManifest(
    "main", ContainerKind.APP, ("cuda-play", "query"), asks={VCORE: 30, VMEMORY: 4}
)
