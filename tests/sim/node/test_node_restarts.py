"""The real agent while the kubelet starts again, on the kubelets of 1.20 and of today."""

from collections.abc import AsyncIterator

import pytest

from gpumanager.kube.pod import ContainerKind
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.kubelet.kubelet import RunOptions
from gpumanager.sim.kubelet.versions import KUBELET_1_20, KUBELET_1_37
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.node import SimulatedNode

BOUND = 120.0
pytestmark = pytest.mark.namespaces


@pytest.fixture(params=[KUBELET_1_20, KUBELET_1_37], ids=lambda version: version.number)
async def node(request: pytest.FixtureRequest) -> AsyncIterator[SimulatedNode]:
    async with SimulatedNode(load_machine("t4x4"), version=request.param) as node:
        yield node


def pod(name: str) -> Pod:
    asks = {VCORE: 40, VMEMORY: 8}
    return Pod("default", name, (ContainerManifest("main", ContainerKind.APP, ("x",), asks=asks),))


async def started(node: SimulatedNode, one: Pod) -> RunOptions:
    assert await node.admit(one) is None
    options = await node.kubelet.prepare(one, one.containers[0])
    node.kubelet.running(one.uid)
    return options


def held(node: SimulatedNode, one: Pod) -> set[str]:
    rows = node.kubelet.books.of_container(one.uid, "main")
    return {name for row in rows for name in row.ids}


async def test_a_restarted_kubelet_finds_the_agent_again_and_pods_keep_what_they_have(
    node: SimulatedNode,
) -> None:
    before = pod("before")
    options = await started(node, before)

    await node.kubelet.restart()
    await node.kubelet.wait_for_devices((VCORE, VMEMORY), BOUND)

    after = pod("after")
    await started(node, after)
    assert not held(node, before) & held(node, after)
    again = await node.kubelet.prepare(before, before.containers[0])
    assert again == options


async def test_an_agent_killed_before_a_container_starts_starts_it_afterwards(
    node: SimulatedNode,
) -> None:
    admitted = pod("admitted")
    assert await node.admit(admitted) is None

    await node.kill_agent()
    await node.start_agent()

    options = await node.kubelet.prepare(admitted, admitted.containers[0])
    assert "VCUDA_ALLOCATION" in options.environment
