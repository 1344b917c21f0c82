"""All is simulated but the agent: scheduler, API server, kubelet, runtime, GPUs. With claims."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from gpumanager.kube.access import Access
from gpumanager.kube.client import KubeClient
from gpumanager.names import CLAIM_DEVICE_CLASS
from gpumanager.sim.bound_pods import BoundPods
from gpumanager.sim.claims.control_plane import ClaimControlPlane
from gpumanager.sim.claims.node import CLASSES
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from gpumanager.sim.container.process import namespaces_available
from gpumanager.sim.kubelet.dra.api import HttpNodeApi
from gpumanager.sim.machines import load_machine
from gpumanager.sim.node import SimulatedNode
from gpumanager.units import GIB
from tests.waiting import until

MISSING = namespaces_available()
pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(MISSING is not None, reason=MISSING or ""),
]

NODE = "n1"


def template(cores: int, memory: str) -> dict[str, Any]:
    asked = {
        "deviceClassName": CLAIM_DEVICE_CLASS,
        "capacity": {"requests": {"cores": str(cores), "memory": memory}},
    }
    devices = {"requests": [{"name": "gpu", "exactly": asked}]}
    metadata = {"name": f"share-{cores}", "namespace": "default"}
    return {"metadata": metadata, "spec": {"spec": {"devices": devices}}}


def pod(name: str, cores: int, *command: str) -> dict[str, Any]:
    uses = {"claims": [{"name": "gpu", "request": "gpu"}]}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "containers": [{"name": "main", "command": list(command), "resources": uses}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": f"share-{cores}"}],
        },
    }


class ClaimsCluster:
    """One node, whose agent serves claims."""

    def __init__(self, server: SimulatedApiServer, node: SimulatedNode, pods: BoundPods) -> None:
        self.server = server
        self.node = node
        self.pods = pods

    async def create(self, item: dict[str, Any]) -> str:
        """The pod's UID."""
        made = await self.server.create("pods", item)
        return str(made["metadata"]["uid"])

    def objects(self, resource: str) -> list[Any]:
        return list(self.server.objects.list(resource))

    def phase(self, name: str) -> str | None:
        """None for a pod that is gone."""
        found = {one["metadata"]["name"]: one for one in self.objects("pods")}
        return None if name not in found else found[name].get("status", {}).get("phase", "Pending")

    async def soon(self, holds: Callable[[], bool]) -> None:
        await until(holds)

    @property
    def cdi_files(self) -> list[Path]:
        return list(self.node.disk.cdi[1].glob("*.json"))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClaimsCluster]:
    async with AsyncExitStack() as last_first:
        server = SimulatedApiServer()
        await server.start()
        last_first.push_async_callback(server.stop)
        await server.create("nodes", {"metadata": {"name": NODE}})
        for one in CLASSES:
            await server.create("deviceclasses", one)
        for cores in (30, 60):
            await server.create("resourceclaimtemplates", template(cores, "1Gi"))
        client = await last_first.enter_async_context(KubeClient(Access(server.url)))
        (tmp_path / "kubeconfig").write_text(server.kubeconfig)
        flags = {
            "interface": "claims",
            "kubeconfig": tmp_path / "kubeconfig",
            "hostname-override": NODE,
        }
        node = SimulatedNode(load_machine("t4x4"), agent_flags=flags, api=HttpNodeApi(client, NODE))
        await last_first.enter_async_context(node)
        pods = BoundPods(node, client, NODE)
        tasks = [asyncio.create_task(ClaimControlPlane(server).run())]
        tasks.append(asyncio.create_task(pods.run()))
        for task in tasks:
            last_first.push_async_callback(ended, task)
        yield ClaimsCluster(server, node, pods)


async def ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_pods_with_claims_run_within_their_shares_and_leave_nothing(
    cluster: ClaimsCluster,
) -> None:
    command = ("cuda-play", "allocate", "--block", "100MiB", "--until-refused")

    uids = [await cluster.create(pod(f"p{n}", 30, *command)) for n in range(4)]
    await cluster.soon(lambda: all(uid in cluster.pods.results for uid in uids))

    for uid in uids:
        (result,) = cluster.pods.results[uid]
        assert (result.refused, result.exit_code, len(result.gpus)) == (None, 0, 1)
        assert 0 < result.measured.memory_peak <= GIB
        assert result.measured.memory_denied >= 1
    await cluster.soon(lambda: {cluster.phase(f"p{n}") for n in range(4)} == {"Succeeded"})
    await cluster.soon(lambda: cluster.objects("resourceclaims") == [])
    assert cluster.cdi_files == []
    (published,) = cluster.objects("resourceslices")
    assert published["spec"]["nodeName"] == NODE


async def test_a_pod_that_is_deleted_gives_its_share_to_the_one_that_waits(
    cluster: ClaimsCluster,
) -> None:
    for n in range(4):
        await cluster.create(pod(f"first-{n}", 60, "sleep", "600"))
    await cluster.soon(lambda: {cluster.phase(f"first-{n}") for n in range(4)} == {"Running"})
    await cluster.create(pod("later", 60, "sleep", "600"))
    assert len(cluster.cdi_files) == 4

    cluster.server.objects.delete(Key("pods", "default", "first-2"), {})
    await cluster.server.change(
        Key("pods", "default", "later"), "application/merge-patch+json", {"metadata": {}}
    )
    await cluster.soon(lambda: cluster.phase("first-2") is None)

    await cluster.soon(lambda: cluster.phase("later") == "Running")
    assert len(cluster.cdi_files) == 4


async def test_what_runs_and_what_waits_outlive_agent_and_kubelet(cluster: ClaimsCluster) -> None:
    uid = await cluster.create(pod("runs", 30, "sleep", "600"))
    await cluster.soon(lambda: cluster.phase("runs") == "Running")
    await cluster.node.kill_agent()
    await cluster.create(pod("waits", 30, "sleep", "600"))
    await cluster.soon(
        lambda: any(one["reason"].startswith("FailedPrepare") for one in cluster.objects("events"))
    )
    await cluster.node.kubelet.restart()
    await cluster.soon(lambda: cluster.objects("resourceslices") == [])

    await cluster.node.start_agent()

    await cluster.soon(lambda: cluster.phase("waits") == "Running")
    await cluster.soon(lambda: len(cluster.objects("resourceslices")) == 1)
    assert uid not in cluster.pods.results
    assert cluster.phase("runs") == "Running"
