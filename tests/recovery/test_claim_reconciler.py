"""Claims that nobody unprepares are released; those that anything may need never are."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpumanager.dra.driver import ClaimRef
from gpumanager.dra.reconciler import PASSES, ClaimReconciler
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.grant import Grant
from gpumanager.grants.refusals import Refused
from gpumanager.ids import AllocationID, ContainerID, PodUID
from gpumanager.isolation.cdi import CdiDevice, cdi_name
from gpumanager.isolation.edits import ENV_ALLOCATION, ContainerEdits
from gpumanager.limits.values import AllocationUsage, ProcessUsage
from gpumanager.runtime.status import Container, LiveContainer
from tests.dra.claim_node import ClaimNode


@dataclass
class Around:
    """Kubelet, runtime, books and driver. silent: which of them do not answer."""

    listed: set[str] = field(default_factory=set)
    running: list[str] = field(default_factory=list)
    busy: bool = False
    tenants: dict[GpuUUID, Collection[PodUID]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)

    async def cdi_devices(self) -> frozenset[str]:
        self._answer("kubelet")
        return frozenset(self.listed)

    async def list(self) -> tuple[LiveContainer, ...]:
        self._answer("runtime")
        known = Container(ContainerID("c"), PodUID("u"), "default", "p", "main")
        envs = [{ENV_ALLOCATION: name} if name else {} for name in self.running]
        return tuple(LiveContainer(known, envs=one) for one in envs)

    def usage(self, grant: Grant) -> AllocationUsage:
        self._answer("books")
        process = ProcessUsage(0, 1, 0, 0, ()) if self.busy else None
        return AllocationUsage(grant.id, 0, (), (process,) if process else ())

    async def pods(self) -> Mapping[GpuUUID, Collection[PodUID]] | None:
        return None if "driver" in self.silent else self.tenants

    def _answer(self, name: str) -> None:
        if name in self.silent:
            raise GpuManagerError(f"{name} does not answer")


@dataclass
class ReconciledNode:
    node: ClaimNode
    around: Around = field(default_factory=Around)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        around: Any = self.around
        api: Any = self.node.api
        self.reconciler = ClaimReconciler(
            self.node.driver,
            api,
            kubelet_devices=around.cdi_devices,
            runtime=around,
            isolation=around,
            tenants=around.pods,
        )

    async def passes(self, number: int = PASSES) -> None:
        for _ in range(number):
            await self.reconciler.reconcile()

    async def prepared(self, cores: int = 70) -> ClaimRef:
        claim = self.node.claim("a", self.node.share(0, cores))
        await self.node.prepare(claim)
        return claim

    def gone(self) -> None:
        """Its claim and its pod, deleted by force."""
        self.node.api.items.clear()
        self.node.api.pods.clear()

    @property
    def held(self) -> bool:
        return bool(self.node.driver.live())

    @property
    def allocation(self) -> str:
        return self.node.driver.live()[0].id


@pytest.fixture
async def node(tmp_path: Path) -> ReconciledNode:
    found = ClaimNode(tmp_path)
    await found.restart()
    return ReconciledNode(found)


async def test_a_claim_that_is_gone_is_released_after_several_passes(
    node: ReconciledNode, caplog: pytest.LogCaptureFixture
) -> None:
    await node.prepared()
    node.gone()

    await node.passes(PASSES - 1)
    assert node.held
    await node.passes(1)

    assert node.node.left() == (set(), set(), set())
    assert node.reconciler.released == 1
    assert "claim default/a (uid-a) was released" in caplog.text


async def test_a_claim_that_is_allocated_here_is_kept_whoever_lists_it(
    node: ReconciledNode,
) -> None:
    await node.prepared()

    await node.passes(3 * PASSES)

    assert node.held


@pytest.mark.parametrize("silent", ["kubelet", "runtime", "books", "API server"])
async def test_nothing_is_released_while_one_of_them_does_not_answer(
    node: ReconciledNode, silent: str
) -> None:
    """And passes before that do not count."""
    await node.prepared()
    node.gone()
    await node.passes(PASSES - 1)
    node.around.silent.add(silent)
    node.node.api.silent = silent == "API server"

    await node.passes(2 * PASSES)
    assert node.held
    node.around.silent.clear()
    node.node.api.silent = False
    await node.passes(PASSES - 1)
    assert node.held
    await node.passes(1)

    assert not node.held


async def test_a_whole_gpu_is_kept_while_the_driver_does_not_tell_or_names_a_process(
    node: ReconciledNode,
) -> None:
    await node.prepared(cores=100)
    node.gone()
    node.around.silent.add("driver")
    await node.passes()
    assert node.held
    node.around.silent.clear()
    node.around.tenants = {node.node.topology.gpus[0].uuid: {PodUID("u")}}
    await node.passes()
    assert node.held
    node.around.tenants.clear()

    await node.passes()

    assert not node.held


async def test_what_the_kubelet_lists_is_kept(node: ReconciledNode) -> None:
    """A claim whose finalizer was removed by hand, of a pod between two starts of its container."""
    await node.prepared()
    grant = node.node.driver.live()[0]
    node.gone()
    node.around.listed = {CdiDevice(cdi_name(grant.id, 0), ContainerEdits()).id, "x.io/gpu=0"}

    await node.passes(2 * PASSES)

    assert node.held


async def test_what_a_container_or_a_process_has_is_kept(node: ReconciledNode) -> None:
    await node.prepared()
    node.gone()
    node.around.running = [node.allocation]
    await node.passes(2 * PASSES)
    assert node.held
    node.around.running = []
    node.around.busy = True
    await node.passes(2 * PASSES)
    assert node.held
    node.around.busy = False

    await node.passes()

    assert not node.held


async def test_nothing_is_released_where_the_runtime_does_not_tell_what_a_container_has(
    node: ReconciledNode,
) -> None:
    await node.prepared()
    node.gone()
    node.around.running = [""]

    await node.passes(2 * PASSES)

    assert node.held


async def test_a_claim_that_is_gone_is_kept_while_a_pod_that_lives_names_it(
    node: ReconciledNode,
) -> None:
    """Of a kubelet that lists no claims."""
    await node.prepared()
    node.node.api.items.clear()
    await node.passes(2 * PASSES)
    assert node.held
    node.node.api.pods.clear()

    await node.passes()

    assert not node.held


async def test_another_claim_of_the_name_does_not_keep_the_first(node: ReconciledNode) -> None:
    """Else it would wait for what the first holds, and the first for its pod."""
    await node.prepared()
    again = node.node.claim("a", node.node.share(0, 70), uid="uid-new")
    assert "are not free" in await node.node.refused(again)

    await node.passes()

    assert await node.node.prepare(again)


async def test_a_claim_that_was_allocated_anew_gets_its_new_gpu(node: ReconciledNode) -> None:
    """Freed while the kubelet was away: the scheduler may have given the first GPU to others."""
    await node.prepared()
    claim = node.node.claim("a", node.node.share(1, 70))
    assert "allocated other devices" in await node.node.refused(claim)

    for _ in range(PASSES):
        await node.reconciler.reconcile()
        answer = await node.node.driver.prepare(claim)

    assert not isinstance(answer, Refused)
    assert [one.device_name for one in answer] == [node.node.device(1)]


async def test_a_claim_that_the_kubelet_asks_for_again_is_kept(node: ReconciledNode) -> None:
    """It believes in it from now on."""
    claim = await node.prepared()
    node.gone()
    await node.passes(PASSES - 1)
    await node.node.prepare(claim)

    await node.passes(PASSES - 1)

    assert node.held


async def test_a_directory_that_could_not_be_removed_goes_once_no_container_has_it(
    node: ReconciledNode,
) -> None:
    left = AllocationID("left")
    node.node.virtual.kept[left] = ()
    node.around.running = [left]
    await node.passes(2)
    node.around.running = []
    node.around.silent = {"runtime"}
    await node.passes(2)
    assert node.node.virtual.kept.keys() == {left}
    node.around.silent.clear()

    await node.passes(1)

    assert not node.node.virtual.kept


async def test_passes_do_not_outlive_the_agent(node: ReconciledNode) -> None:
    await node.prepared()
    node.gone()
    await node.passes(PASSES - 1)

    await node.node.restart()
    node.begin()
    await node.passes(PASSES - 1)

    assert node.held
