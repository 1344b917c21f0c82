"""A simulated node that goes from device plugins to claims and back, while its containers run."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpumanager.kube.pod import ContainerKind
from gpumanager.names import ANNOTATION_CLAIMS_GPUS, VCORE, VMEMORY
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.manifest.pods import NODE, ContainerManifest, Pod
from tests.dra.node_of_claims import NodeOfClaims
from tests.sim.claims.claim_objects import request
from tests.waiting import until

pytestmark = pytest.mark.namespaces
SOON = {"gpu-move-delay": "0.3s", "allocation-check-period": "1s"}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[NodeOfClaims]:
    async with NodeOfClaims(flags={"interface": "device-plugin", **SOON}) as found:
        yield found


def device_pod(name: str, cores: int, blocks: int, command: str) -> Pod:
    asks = {VCORE: cores} | ({VMEMORY: blocks} if blocks else {})
    main = ContainerManifest("main", ContainerKind.APP, ("sh", "-c", command), asks=asks)
    return Pod("default", name, (main,))


def cores(node: NodeOfClaims) -> int:
    return node.node.kubelet.books.capacity(VCORE)


async def started(node: NodeOfClaims, pod: Pod) -> "asyncio.Task[object]":
    assert await node.node.admit(pod) is None
    running = asyncio.Event()
    task = asyncio.create_task(node.node.runner.run(pod, running=running))
    await running.wait()
    return task


async def test_a_node_becomes_a_claims_node_and_back_without_a_drain(node: NodeOfClaims) -> None:
    old = device_pod("old", 60, 4, "echo up; sleep 600")
    running = await started(node, old)
    await until(lambda: "up" in node.printed)

    await node.node.restart_agent(interface="claims")
    await until(lambda: node.offered() == 3)
    await node.claim("a", request("gpu", 60, "2Gi"))
    pod = await node.pod("new", {"main": [("a", "gpu")]}, "echo claimed; sleep 600")
    claimed = asyncio.create_task(node.run_pod(pod))
    await until(lambda: "claimed" in node.printed)
    assert cores(node) == 0
    node.node.kubelet.delete(old.uid)
    node.node.kill_containers()
    await running
    await claimed
    await until(lambda: node.offered() == 4)

    await node.claim("b", request("gpu", 60, "2Gi"))
    pod = await node.pod("last", {"main": [("b", "gpu")]}, "echo last; sleep 600")
    claimed = asyncio.create_task(node.run_pod(pod))
    await until(lambda: "last" in node.printed)
    await node.node.restart_agent(interface="device-plugin")
    await until(lambda: cores(node) == 300)
    assert node.offered() == 0
    node.node.kill_containers()
    await claimed
    await until(lambda: cores(node) == 400)


async def test_the_node_s_annotation_says_how_many_gpus_claims_have(tmp_path: Path) -> None:
    async with NodeOfClaims(flags={"interface": "both", **SOON}) as node:
        await until(lambda: cores(node) == 400)
        for wanted in (3, 1):
            annotations = {ANNOTATION_CLAIMS_GPUS: str(wanted)}
            patch = {"metadata": {"annotations": annotations}}
            await node.server.change(Key("nodes", "", NODE), patch)
            await until(lambda: node.offered() == wanted)  # noqa: B023
            await until(lambda: cores(node) == 100 * (4 - wanted))  # noqa: B023
