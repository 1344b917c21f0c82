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
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from gpumanager.dra.driver import ClaimDriver, ClaimRef, as_granted, uid_of
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.grant import ClaimSource, Grant
from gpumanager.grants.refusals import RetryLater
from gpumanager.ids import AllocationID, PodUID
from gpumanager.isolation.cdi import KIND
from gpumanager.isolation.edits import ENV_ALLOCATION
from gpumanager.kube.claims import AllocatedDevice
from gpumanager.limits.pages.usage import AllocationUsage
from gpumanager.runtime.values import LiveContainers

log = logging.getLogger(__name__)

PASS_SECONDS: Final = 30.0
PASSES: Final = 5
"""Longer than the kubelet's own reconciliation (60 s, pkg/kubelet/cm/dra/manager.go), and than it
takes to start again."""


@dataclass(frozen=True, slots=True)
class ClaimEvidence:
    """What needs grants now. Everything by allocation; `unwanted` by the claim's UID.

    unwanted: claims of which API server and pods say that nothing needs them. listed: by the
    kubelet. running: by containers and processes.
    """

    unwanted: frozenset[str]
    listed: frozenset[AllocationID] = frozenset()
    running: frozenset[AllocationID] = frozenset()


def unused(live: Iterable[Grant], evidence: ClaimEvidence) -> frozenset[str]:
    """UIDs of claims none of whose grants anything needs."""
    needed = evidence.listed | evidence.running
    used = {uid_of(one) for one in live if one.id in needed}
    return evidence.unwanted - used


def counted(
    passes: Mapping[str, int], found: Iterable[str], asked: Collection[str]
) -> Mapping[str, int]:
    """In how many passes in a row each was unused. asked: the kubelet prepared it since."""
    return {uid: 1 if uid in asked else passes.get(uid, 0) + 1 for uid in found}


class AllocatedClaims(Protocol):
    """Knows what claims are allocated, and which pods name them: `dra.cluster`."""

    def allocated(self, uid: str) -> tuple[AllocatedDevice, ...] | None:
        """By the watch; None where it does not know the claim, or is behind."""

    async def reread(self, namespace: str, name: str, uid: str) -> tuple[AllocatedDevice, ...]:
        """By the API server itself; nothing where the claim is gone, another one, or not allocated
        here. Raises RetryLater."""

    async def named_by_pod(self, namespace: str, name: str) -> bool:
        """Return whether a pod of this node that has not ended names a claim that does not exist.

        Raises RetryLater."""


class KubeletClaims(Protocol):
    """What the kubelet has prepared for its pods: `kubelet.pod_resources`."""

    async def cdi_devices(self) -> frozenset[str]:
        """Names of CDI devices. Raises GpuManagerError."""


class Usages(Protocol):
    """What the back ends see in use: `isolation.table`."""

    def usage(self, grant: Grant) -> AllocationUsage | None: ...


class GpuProcesses(Protocol):
    """`runtime.tenants`."""

    async def pods(self) -> Mapping[GpuUUID, Collection[PodUID]] | None: ...


class ClaimReconciler:
    """released: how many claims, since the start."""

    def __init__(
        self,
        driver: ClaimDriver,
        claims: AllocatedClaims,
        *,
        kubelet: KubeletClaims,
        runtime: LiveContainers,
        usages: Usages,
        tenants: GpuProcesses,
    ) -> None:
        self._driver = driver
        self._claims = claims
        self._kubelet = kubelet
        self._runtime = runtime
        self._usages = usages
        self._tenants = tenants
        self._passes: Mapping[str, int] = {}
        self.released = 0

    async def reconcile_every(self, seconds: float) -> None:
        """For as long as the task lives."""
        while True:
            await asyncio.sleep(seconds)
            await self.reconcile()

    async def reconcile(self) -> None:
        """One pass."""
        asked, evidence = self._driver.take_prepared(), None
        unwanted = await self._unwanted()
        if unwanted or not self._driver.whole or self._driver.orphans():
            try:
                evidence = await self._evidence(unwanted)
            except GpuManagerError as error:
                log.debug("claims are not reconciled now: %s", error)
        found = unused(self._driver.live(), evidence) if evidence else ()
        self._passes = counted(self._passes, found, asked)
        for uid in [uid for uid, passes in self._passes.items() if passes >= PASSES]:
            await self._release(uid)
        await self._driver.repair(evidence.running if evidence else None)

    async def _release(self, uid: str) -> None:
        """Tried again in the next pass where the disk refuses it."""
        source = self._sources().get(uid)
        if source is None:  # the kubelet has unprepared it meanwhile
            return
        claim = ClaimRef(source.namespace, source.name, source.uid)
        try:
            if not await self._driver.reclaim(claim):
                return
        except (GpuManagerError, OSError) as error:
            log.warning("claim %s is not released yet: %s", claim, error)
            return
        self.released += 1
        log.warning(
            "claim %s was released: it is deleted or no longer allocated here, neither kubelet nor "
            "container runtime has it, and the kubelet did not unprepare it",
            claim,
        )

    def _sources(self) -> dict[str, ClaimSource]:
        found = (one.source for one in self._driver.live())
        return {one.uid: one for one in found if isinstance(one, ClaimSource)}

    async def _unwanted(self) -> frozenset[str]:
        """By API server and pods. A claim of which nothing is known is wanted."""
        unwanted: set[str] = set()
        for uid, source in self._sources().items():
            with contextlib.suppress(RetryLater):
                if not await self._is_wanted(source):
                    unwanted.add(uid)
        return frozenset(unwanted)

    async def _is_wanted(self, source: ClaimSource) -> bool:
        """Raises RetryLater."""
        held = [one for one in self._driver.live() if uid_of(one) == source.uid]
        known = self._claims.allocated(source.uid)
        if known is not None and as_granted(known, held):
            return True
        found = await self._claims.reread(source.namespace, source.name, source.uid)
        if found:
            return as_granted(found, held)
        return await self._claims.named_by_pod(source.namespace, source.name)

    async def _evidence(self, unwanted: frozenset[str]) -> ClaimEvidence:
        """Raises GpuManagerError where kubelet, runtime, books or driver do not tell."""
        prefix = f"{KIND}="
        listed = {
            AllocationID(name.removeprefix(prefix).rpartition("-")[0])
            for name in await self._kubelet.cdi_devices()
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
        suspects = [
            one
            for one in self._driver.live()
            if isinstance(one.source, ClaimSource) and one.source.uid in unwanted
        ]
        running |= {one.id for one in suspects if self._has_processes(one)}
        if exclusive := [one for one in suspects if one.exclusive]:
            tenants = await self._tenants.pods()
            if tenants is None:
                raise GpuManagerError("the driver does not report which processes use the GPUs")
            running |= {one.id for one in exclusive if any(map(tenants.get, one.gpus))}
        return ClaimEvidence(unwanted, frozenset(listed), frozenset(running))

    def _has_processes(self, grant: Grant) -> bool:
        """Where its books cannot be read it may have."""
        try:
            usage = self._usages.usage(grant)
        except GpuManagerError as error:
            log.debug("allocation %s is kept: %s", grant.id, error)
            return True
        return usage is not None and bool(usage.processes)
