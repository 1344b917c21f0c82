"""Pods with claims on a simulated node, with a driver that is not ours."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gpumanager.kube.pod import ContainerKind
from gpumanager.sim import events
from gpumanager.sim.container_runtime import CONTAINERD_1_6, CONTAINERD_2, ContainerdVersion
from gpumanager.sim.kubelet.pods import Phase
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import ContainerClaim, ContainerManifest, Pod, PodClaim
from gpumanager.sim.node import SimulatedNode
from tests.contracts.dra.claims_kubelet import DRIVER
from tests.contracts.dra.simulated_claims import MemoryApi, allocated
from tests.contracts.dra.stub_driver import StubDriver
from tests.waiting import until

pytestmark = pytest.mark.namespaces

SHELL = ("sh", "-c", 'echo "limit=$LIMIT"; exit 3')
MAIN = ContainerManifest("main", ContainerKind.APP, SHELL, claims=(ContainerClaim("gpu"),))
POD = Pod("default", "claiming", (MAIN,), claims=(PodClaim("gpu", "claim"),))


class ClaimsNode:
    """A node, its API server and a driver."""

    def __init__(self, runtime: ContainerdVersion) -> None:
        self.api = MemoryApi()
        self.seen: list[events.Event] = []
        self.node = SimulatedNode(
            load_machine("t4x4"), runtime=runtime, api=self.api, on_event=self.seen.append
        )

    async def start(self) -> None:
        disk = self.node.disk
        self.driver = StubDriver(disk.base, disk.cdi[1], DRIVER)
        device = self.driver.device("gpu-0", cdi="share", env={"LIMIT": "30"})
        self.driver.devices["claim"] = [device]
        await self.driver.start()
        await until(lambda: self.driver.told == [(True, "")])
        self.api.claims["claim"] = allocated("claim", "claim-uid", reserved_for=[POD.uid])

    @property
    def printed(self) -> list[str]:
        return [one.line for one in self.seen if isinstance(one, events.ContainerPrinted)]


@pytest.fixture
def runtime() -> ContainerdVersion:
    return CONTAINERD_2


@pytest.fixture
async def claiming(runtime: ContainerdVersion) -> AsyncIterator[ClaimsNode]:
    claiming = ClaimsNode(runtime)
    async with claiming.node:
        await claiming.start()
        yield claiming
        await claiming.driver.stop()


@pytest.mark.parametrize("runtime", [CONTAINERD_2, CONTAINERD_1_6], ids=lambda kind: kind.number)
async def test_a_container_has_what_its_claim_gives_unless_the_runtime_is_too_old(
    claiming: ClaimsNode,
) -> None:
    (result,) = await claiming.node.run([POD])

    applied = claiming.node.runtime.kind.cdi
    assert claiming.printed == ["limit=30" if applied else "limit="]
    assert result.exit_code == 3
    assert claiming.driver.prepared() == claiming.driver.unprepared() == [{"claim"}]


async def test_a_refused_pod_is_pending_and_runs_when_its_driver_gives_in(
    claiming: ClaimsNode,
) -> None:
    claiming.driver.refuse = {"claim": "not yet"}
    running = asyncio.create_task(claiming.node.run([POD]))
    await until(lambda: bool(claiming.api.events))

    assert claiming.node.kubelet.pods.statuses[POD.uid].phase is Phase.PENDING
    assert claiming.printed == []
    claiming.driver.refuse = {}

    (result,) = await running
    assert result.exit_code == 3


async def test_a_pod_that_is_deleted_while_it_waits_never_runs(claiming: ClaimsNode) -> None:
    claiming.driver.refuse = {"claim": "not yet"}
    running = asyncio.create_task(claiming.node.run([POD]))
    await until(lambda: bool(claiming.api.events))
    claiming.driver.refuse = {}

    claiming.node.kubelet.delete(POD.uid)

    (result,) = await running
    assert result.refused == "deleted before its claims were prepared"
    assert claiming.driver.unprepared() == [{"claim"}]
    assert claiming.printed == []


async def test_a_node_without_an_api_server_refuses_claims() -> None:
    async with SimulatedNode(load_machine("t4x4")) as node:
        (result,) = await node.run([POD])

    assert result.refused is not None
    assert "default/claiming has claims" in result.refused
