"""Evidence of which pod holds which GPU, for where the journal is missing or out of date.

The kubelet's checkpoint: which container holds which device IDs, and our Allocate response. The
container runtime: running containers, and the allocation that each has mounted. The directories of
allocations: their limits. The kubelet's list of pods: which have ended. Each may be missing.

A pod writes its own environment and host paths, so they prove nothing about another pod. Only the
kubelet writes a container's labels and CRI annotations: it copies our Allocate answer into the
annotations, and no pod without GPUs has that (decision 0097).
"""

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpumanager.deviceplugin.admission.transaction import View
from gpumanager.deviceplugin.identity.verdict import Checkpoint
from gpumanager.errors import GpuManagerError, words_of
from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.grant import Grant
from gpumanager.ids import AllocationID, PodUID
from gpumanager.isolation.edits import ENV_ALLOCATION
from gpumanager.isolation.table import Isolations
from gpumanager.kubelet.pods import PodsSource, PodsUnavailable
from gpumanager.limits.values import Limit
from gpumanager.names import CONTAINER_VCUDA, VCORE
from gpumanager.runtime.status import LiveContainer, LiveContainers

logger = logging.getLogger(__name__)

RUNTIME_SECONDS: Final = 5.0
"""Seconds for the container runtime to list containers."""

Key = tuple[PodUID, str]
"""A pod, and the name of one of its containers."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All of it. None: nobody could tell.

    tenants: pods with processes on each GPU, by the driver.
    """

    checkpoint: Checkpoint | None = None
    live: tuple[LiveContainer, ...] | None = None
    directories: Mapping[AllocationID, tuple[Limit, ...]] = field(default_factory=dict)
    view: View | None = None
    tenants: Mapping[GpuUUID, frozenset[PodUID]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether a pod that neither the checkpoint nor the runtime shows does not exist."""
        return self.checkpoint is not None and self.live is not None


async def list_live_containers(
    runtime: LiveContainers | None, patience: float = RUNTIME_SECONDS
) -> tuple[LiveContainer, ...] | None:
    """Return the running containers; None where nobody tells in time. patience: seconds."""
    if runtime is None:
        return None
    try:
        async with asyncio.timeout(patience):
            return await runtime.list()
    except (GpuManagerError, TimeoutError) as error:
        logger.debug("cannot list running containers: %s", words_of(error))
        return None


class PodLister:
    """Looks at the kubelet's list of pods; says once that it cannot be read."""

    def __init__(self, pods: PodsSource | None) -> None:
        self._pods = pods
        self._blind = False
        self._last: tuple[float, View] = (-math.inf, ())

    async def list(self, max_age: float = 0.0) -> View | None:
        """None where the list cannot be read. max_age: seconds that a list may be old."""
        if self._pods is None:
            return None
        began, view = time.monotonic(), self._last[1]
        if began - self._last[0] < max_age:
            return view
        try:
            view = await self._pods.pods()
        except PodsUnavailable as error:
            logger.log(logging.DEBUG if self._blind else logging.WARNING, "%s", error)
            self._blind = True
            return None
        self._blind = False
        self._last = began, view
        return view


def directories(isolation: Isolations) -> dict[AllocationID, tuple[Limit, ...]]:
    """Return every allocation that has a directory, with its limits."""
    return {name: isolation.limits(name) for name in isolation.allocations()}


def allocation_of(container: LiveContainer) -> AllocationID | None:
    """Return the allocation that a container with GPUs names: by its mount; whole GPUs have none.

    None for a container to which the kubelet gave no GPUs. What it names may be another pod's: see
    `lived_on`.
    """
    named = mounted_allocation(container) or container.envs.get(ENV_ALLOCATION)
    return AllocationID(named) if named and VCORE in container.annotations else None


def mounted_allocation(container: LiveContainer) -> AllocationID | None:
    """The same, by its mount alone."""
    source = container.source(str(CONTAINER_VCUDA))
    if source is None or Path(source).parent.name != "alloc" or VCORE not in container.annotations:
        return None
    return AllocationID(Path(source).name)


def computing(granted: Iterable[Grant], evidence: Evidence) -> frozenset[AllocationID]:
    """Return the allocations of pods that have processes on their GPUs."""
    return frozenset(
        a.id
        for a in granted
        if a.owner and any(is_tenant(a.owner, evidence.tenants.get(gpu, ())) for gpu in a.gpus)
    )


def is_tenant(uid: PodUID, tenants: Collection[PodUID]) -> bool:
    """systemd has no `-` in the name of a slice, so that cgroups may name a pod with `_`."""
    return uid in tenants or uid.replace("-", "_") in tenants or uid.replace("_", "-") in tenants


def lived_on(live: Iterable[LiveContainer], granted: Iterable[Grant]) -> frozenset[AllocationID]:
    """Of these grants, those with which a container of their own pod runs.

    A container that names none of its pod's grants has those of its name. Example: a pod with two
    whole GPUs sets VCUDA_ALLOCATION to another pod's allocation; it keeps its own two.
    """
    own: defaultdict[PodUID, list[Grant]] = defaultdict(list)
    unconfirmed: set[AllocationID] = set()
    for one in granted:
        if one.pod is None:
            unconfirmed.add(one.id)
        else:
            own[one.pod.uid].append(one)
    found: set[AllocationID] = set()
    for container in live:
        if VCORE not in container.annotations:
            continue
        named, who = allocation_of(container), container.container
        mine = own.get(who.pod_uid, [])
        said = {one.id for one in mine if one.id == named}
        found |= said or {
            one.id  # gpu-manager's containers name no allocation: whether they run is not known
            for one in mine
            if one.pod and one.pod.container == who.name and not one.legacy
        }
        if (mounted := mounted_allocation(container)) in unconfirmed and mounted:
            found.add(mounted)  # by its mounted directory: its pod is not confirmed yet
    return frozenset(found)
