"""What no contract (tests/contracts/kubelet) says of the simulated kubelet, over its sockets."""

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import grpc.aio
import pytest

from gpumanager.kube.pod import ContainerKind
from gpumanager.kubelet import wire as pod_resources
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.kubelet import kubelet, plugins
from gpumanager.sim.kubelet.kubelet import (
    CreateContainerError,
    DevicesNotReady,
    SimulatedKubelet,
)
from gpumanager.sim.kubelet.pods import Phase
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from tests.contracts.kubelet.fake_plugin import FakePlugin


class Node:
    """A kubelet and two plugins."""

    def __init__(self, base: Path) -> None:
        self.directory = base / "kubelet"
        self.kubelet = SimulatedKubelet(self.directory, Random(5), base / "pod-resources.sock")
        self.core = FakePlugin(self.directory, VCORE, [f"c{number}" for number in range(10)])
        self.memory = FakePlugin(self.directory, VMEMORY, [f"m{number}" for number in range(6)])

    async def start(self) -> None:
        await self.kubelet.start()
        for plugin in (self.core, self.memory):
            await plugin.start()
            await plugin.register()
        await self.kubelet.wait_for_devices((VCORE, VMEMORY), 120)

    async def stop(self) -> None:
        await self.kubelet.stop()
        for plugin in (self.core, self.memory):
            await plugin.stop()


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    base = Path(tempfile.mkdtemp(prefix="gm"))
    node = Node(base)
    await node.start()
    yield node
    await node.stop()
    shutil.rmtree(base)


def container(name: str, cores: int, blocks: int = 0) -> ContainerManifest:
    asks = {VCORE: cores} | ({VMEMORY: blocks} if blocks else {})
    return ContainerManifest(name, ContainerKind.APP, ("x",), asks=asks)


def pod(*containers: ContainerManifest, name: str = "pod") -> Pod:
    return Pod("default", name, containers or (container("main", cores=2, blocks=1),))


async def test_a_plugin_that_does_not_serve_is_refused(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "DIAL_SECONDS", 0.2)
    silent = FakePlugin(node.directory, "example.com/silent", ["x"])

    with pytest.raises(grpc.aio.AioRpcError, match="failed to dial device plugin"):
        await silent.register()


async def test_resources_come_in_any_order(node: Node) -> None:
    first: set[str] = set()
    order: list[str] = []
    for plugin in (node.core, node.memory):

        async def note(name: str = plugin.resource) -> None:
            order.append(name)

        plugin.during_allocate = note
    for number in range(12):
        order.clear()
        one = pod(name=f"p{number}")
        await node.kubelet.admit(one)
        first.add(order[0])
        node.kubelet.delete(one.uid)

    assert first == {VCORE, VMEMORY}


async def test_the_plugins_answers_are_merged_for_the_runtime(node: Node) -> None:
    one = pod()
    await node.kubelet.admit(one)

    options = await node.kubelet.prepare(one, one.containers[0])

    assert options.environment.keys() == {"RESOURCE", "core.sock", "memory.sock"}
    assert [mount.container_path for mount in options.mounts] == ["/etc/vcuda"]
    assert node.core.called("pre_start") == [("c0", "c1")]
    assert node.memory.called("pre_start") == [("m0",)]


async def test_a_start_that_keeps_failing_ends_as_create_container_error(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubelet, "START_BACK_OFF", 0.001)
    await node.kubelet.admit(one := pod())
    node.core.refuse = {"pre_start": "never"}

    with pytest.raises(CreateContainerError, match="CreateContainerError: never"):
        await node.kubelet.prepare(one, one.containers[0])


@pytest.mark.parametrize(("failed", "phase"), [(True, Phase.FAILED), (False, Phase.SUCCEEDED)])
async def test_a_pod_that_ended_has_the_phase_of_its_end(
    node: Node, phase: Phase, *, failed: bool
) -> None:
    await node.kubelet.admit(one := pod())

    node.kubelet.ended(one.uid, failed=failed)

    assert node.kubelet.pods.statuses[one.uid].phase is phase


async def test_looking_during_an_admission_gives_devices_out_twice_as_in_the_real_one(
    node: Node,
) -> None:
    ending = pod(container("main", cores=1), name="ending")
    await node.kubelet.admit(ending)

    async def end_and_look() -> None:
        node.kubelet.ended(ending.uid, failed=False)
        async with pod_resources.dial(node.kubelet.pod_resources_socket) as channel:
            await pod_resources.PodResourcesClient(channel, 5).list()

    node.core.during_allocate = end_and_look
    await node.kubelet.admit(pod(container("a", cores=2), container("b", cores=2), name="two"))

    first, second = node.core.called("allocate")[1:]
    assert node.kubelet.books.held(VCORE) == set(first) | set(second)


async def test_waiting_for_a_plugin_ends(node: Node) -> None:
    with pytest.raises(DevicesNotReady, match=r"no plugin offered example\.com/none within 0 s"):
        await node.kubelet.wait_for_devices(("example.com/none",), 0.01)
