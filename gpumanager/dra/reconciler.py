"""Releases the grants of claims that nobody will unprepare.

The kubelet unprepares what it has prepared, as often as it takes. It cannot where its checkpoint
was lost (a node that was installed anew under running agents, `dra_manager_state` removed by hand).
A grant is released when nothing needs it, in several passes in a row:

    API server         its claim is gone, or is another one, or is allocated other devices
    the node's pods    none that has not ended names a claim that does not exist
    kubelet            lists it for no container of a pod
    container runtime  no container runs with it, and no process has a place in its books

What does not answer needs everything. Passes are counted and no clock is read: neither a clock that
jumps nor a machine that slept for an hour makes one pass into many.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from gpumanager.dra.cluster import ClaimCluster
from gpumanager.dra.driver import ClaimDriver, ClaimRef, as_granted, uid_of
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.grant import ClaimSource
from gpumanager.grants.refusals import RetryLater
from gpumanager.ids import AllocationID, PodUID
from gpumanager.isolation.cdi import KIND
from gpumanager.isolation.edits import ENV_ALLOCATION
from gpumanager.isolation.table import Isolations
from gpumanager.runtime.status import LiveContainers

log = logging.getLogger(__name__)

PASS_SECONDS: Final = 30.0
PASSES: Final = 5
"""Longer than the kubelet's own reconciliation (60 s, pkg/kubelet/cm/dra/manager.go), and than it
takes to start again."""


class ClaimReconciler:
    """released: how many claims, since the start. kubelet_devices: the CDI devices that the kubelet
    has prepared for its pods; raises GpuManagerError. tenants: the pods with a process on each GPU;
    None where the driver does not tell."""

    def __init__(
        self,
        driver: ClaimDriver,
        claims: ClaimCluster,
        *,
        kubelet_devices: Callable[[], Awaitable[Collection[str]]],
        runtime: LiveContainers,
        isolation: Isolations,
        tenants: Callable[[], Awaitable[Mapping[GpuUUID, Collection[PodUID]] | None]],
    ) -> None:
        self._driver, self._claims = driver, claims
        self._kubelet_devices, self._runtime = kubelet_devices, runtime
        self._isolation, self._tenants = isolation, tenants
        self.released = 0

    async def reconcile_every(self, seconds: float) -> None:
        """Release such claims for as long as the task lives."""
        while True:
            await asyncio.sleep(seconds)
            await self.reconcile()

    async def reconcile(self) -> None:
        """Make one pass."""
        unwanted, unused = await self._find_unwanted(), frozenset[str]()
        running, passes = None, self._driver.unused
        if unwanted or not self._driver.whole or self._driver.orphans():
            try:
                listed, running = await self._evidence(unwanted)
                needed = (one for one in self._driver.live() if one.id in listed | running)
                unused = unwanted.difference(map(uid_of, needed))
            except GpuManagerError as error:
                log.debug("claims are not reconciled now: %s", error)
        for uid in passes.keys() - unused:
            del passes[uid]
        for uid in unused:
            passes[uid] = passes.get(uid, 0) + 1
        for uid, source in self._sources().items():
            if passes.get(uid, 0) < PASSES:
                continue
            claim = ClaimRef(source.namespace, source.name, uid)
            try:
                if not await self._driver.reclaim(claim, PASSES):
                    continue
            except (GpuManagerError, OSError) as error:  # the next pass tries again
                log.warning("claim %s is not released yet: %s", claim, error)
                continue
            self.released += 1
            log.warning(
                "claim %s was released: it is deleted or no longer allocated here, neither kubelet "
                "nor container runtime has it, and the kubelet did not unprepare it",
                claim,
            )
        await self._driver.repair(running)

    def _sources(self) -> dict[str, ClaimSource]:
        found = (one.source for one in self._driver.live())
        return {one.uid: one for one in found if isinstance(one, ClaimSource)}

    async def _find_unwanted(self) -> frozenset[str]:
        """Return the UIDs of claims that API server and pods do not want. A claim of which nothing
        is known is wanted."""
        unwanted: set[str] = set()
        for uid, source in self._sources().items():
            with contextlib.suppress(RetryLater):
                held = [one for one in self._driver.live() if uid_of(one) == uid]
                known = self._claims.allocated(uid)
                if known is not None and as_granted(known, held):
                    continue
                found = await self._claims.reread(source.namespace, source.name, uid)
                if found:
                    wanted = as_granted(found, held)
                else:
                    wanted = await self._claims.named_by_pod(source.namespace, source.name)
                if not wanted:
                    unwanted.add(uid)
        return frozenset(unwanted)

    async def _evidence(
        self, unwanted: Collection[str]
    ) -> tuple[set[AllocationID], set[AllocationID]]:
        """Return the allocations that the kubelet lists, and those with which containers or
        processes run. Raises GpuManagerError where kubelet, runtime or driver do not answer."""
        prefix = f"{KIND}="
        listed = {
            AllocationID(name.removeprefix(prefix).rpartition("-")[0])
            for name in await self._kubelet_devices()
            if name.startswith(prefix)
        }
        containers = await self._runtime.list()
        if silent := next((one for one in containers if not one.envs), None):
            raise GpuManagerError(
                f"the container runtime does not report the environment of {silent.container}"
            )
        running = {
            AllocationID(one.envs[ENV_ALLOCATION])
            for one in containers
            if ENV_ALLOCATION in one.envs
        }
        suspects = [one for one in self._driver.live() if uid_of(one) in unwanted]
        for one in suspects:
            try:
                usage = self._isolation.usage(one)
                runs = usage is not None and bool(usage.processes)
            except GpuManagerError as error:  # where its books cannot be read it may run
                log.debug("allocation %s is kept: %s", one.id, error)
                runs = True
            running |= {one.id} if runs else set()
        if exclusive := [one for one in suspects if one.exclusive]:
            tenants = await self._tenants()
            if tenants is None:
                raise GpuManagerError("the driver does not report which processes use the GPUs")
            running |= {one.id for one in exclusive if any(map(tenants.get, one.gpus))}
        return listed, running
