"""The reconciler: compares journal, checkpoint, pods and runtime, and corrects the journal.

A pass reads them first, without the allocator's lock, and acts then, under it:

* A grant whose pod has looked ended for the grace period is released, unless a container uses it.
* Devices that the kubelet's checkpoint has for a pod, and the journal has not for as long, get a
  grant.
* A directory is removed that no grant owns, no container mounts, and no Allocate response names.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final

from gpumanager.deviceplugin.admission.transaction import View
from gpumanager.deviceplugin.dependencies import Dependencies
from gpumanager.deviceplugin.identity.adoption import (
    adopt_booked,
    adopt_used,
    is_evidence,
    unrecorded,
)
from gpumanager.deviceplugin.identity.device_checkpoint import given
from gpumanager.deviceplugin.identity.evidence import (
    Evidence,
    Key,
    allocation_of,
    computing,
    directories,
    is_tenant,
    list_live_containers,
    lived_on,
)
from gpumanager.deviceplugin.identity.resolution import named
from gpumanager.deviceplugin.identity.verdict import GrantFacts, Occasion, ended_grants, has_ended
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import Topology
from gpumanager.grants.grant import Grant, State
from gpumanager.grants.journal import Journal
from gpumanager.grants.node import Node
from gpumanager.ids import AllocationID
from gpumanager.isolation.edits import ENV_ALLOCATION
from gpumanager.names import CLAIMS, DEVICE_PLUGINS, VCORE


@dataclass(frozen=True, slots=True)
class Disagreement:
    """kind: one of KINDS. what: an allocation, or a pod and its container."""

    kind: str
    what: str
    detail: str


KINDS = {
    "unrecorded": "the kubelet has allocated devices that are not in the journal",
    "unbooked": "a container's grant has devices that the kubelet's checkpoint does not give it",
    "lingering": "the pod has ended, but a container still runs with its grant",
    "unknown-container": "a container runs with an allocation that is not in the journal",
    "directory": "a directory belongs to an allocation that is not in the journal",
    "doubled": "two live pods hold the same device",
    "stranger": "a pod has processes on a GPU without a grant for it",
    "gpu-gone": "a live pod holds a GPU that this node does not have",
}
"""What each kind means."""


def disagreements(
    topology: Topology, live: tuple[Grant, ...], evidence: Evidence, ended: frozenset[AllocationID]
) -> Iterator[Disagreement]:
    """Yield all there are. ended: grants of pods that look ended now."""
    standing = [one for one in live if one.id not in ended]
    yield from _in_books(live, standing, evidence)
    for running in evidence.live or ():
        own, name = lived_on((running,), live), allocation_of(running)
        for allocation in own & ended:
            yield Disagreement("lingering", allocation, str(running.container))
        if name is not None and not own:
            yield Disagreement("unknown-container", name, str(running.container))
    for gpu, pods in evidence.tenants.items():
        owners = {one.owner for one in live if gpu in one.gpus and one.owner}
        for uid in pods:
            if not any(is_tenant(owner, (uid,)) for owner in owners):
                yield Disagreement("stranger", uid, f"has processes on {gpu}")
    for one in standing:
        for uuid in one.gpus:
            if topology.by_uuid(uuid) is None:
                yield Disagreement("gpu-gone", one.id, f"{one.pod or 'nobody'}: {uuid}")


def _in_books(
    live: tuple[Grant, ...], standing: list[Grant], evidence: Evidence
) -> Iterator[Disagreement]:
    """Yield what checkpoint, journal and directories say otherwise of one another."""
    for uid, container in unrecorded(live, evidence.checkpoint or ()):
        if evidence.view is not None and not has_ended(uid, evidence.view):
            yield Disagreement("unrecorded", f"{uid} ({container})", "it will be held")
    booked = {(h.pod_uid, h.ids) for h in evidence.checkpoint or () if h.resource == VCORE}
    for one in standing if evidence.checkpoint is not None else ():
        if one.pod and (one.pod.uid, frozenset(one.ids.core_ids)) not in booked:
            yield Disagreement("unbooked", one.id, f"{one.pod}: {one.cores} cores")
    for name in evidence.directories.keys() - {one.id for one in live}:
        yield Disagreement("directory", name, "it goes once nobody has it mounted")
    holders: dict[str, Grant] = {}
    for one in (grant for grant in standing if grant.state is State.CONFIRMED):
        for device_id in one.ids.all:
            other = holders.setdefault(device_id, one)
            if other.owner != one.owner:
                yield Disagreement("doubled", device_id, f"{other.pod} and {one.pod}")


logger = logging.getLogger(__name__)


PASSES_PER_RUNTIME_LIST: Final = 6
"""The runtime is asked in every sixth pass: it lists the containers of a full node slowly."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one pass has read. began: its start, in seconds of a monotonic clock.

    granted: the grants before it; later ones may be missing in the evidence.
    """

    began: float
    granted: frozenset[AllocationID]
    evidence: Evidence


class Reconciler:
    """One per allocator. disagreements: of the last pass."""

    def __init__(self, node: Node, deps: Dependencies) -> None:
        self._node, self._store = node, node.store
        self._deps = deps
        self._ended: Mapping[AllocationID, float] = {}
        self._settled: dict[bool, tuple[Journal, Evidence] | None] = {}
        """What a pass with the runtime, and one without, has read that left nothing to do."""
        self._unrecorded: Mapping[Key, float] = {}
        self._passes = 0
        self.disagreements: tuple[Disagreement, ...] = ()

    def _live(self) -> tuple[Grant, ...]:
        return self._node.grants(DEVICE_PLUGINS)

    async def look(self, before: Iterable[Grant], view: View | None) -> Look:
        """Read everything, without the lock: it may take seconds. before: grants older than `view`.

        The runtime is asked if something would be released, and otherwise now and then.
        """
        began, names = self._deps.elapsed(), frozenset(a.id for a in before)
        checkpoint = await self._deps.books.read()
        granted = self._live()
        self._passes += 1
        turn = self._passes % PASSES_PER_RUNTIME_LIST == 0
        read = Evidence(checkpoint, view=view)
        if not turn and (self._store.journal, read) == self._settled.get(False):
            return Look(began, names, read)
        unowned = {*self._deps.isolation.allocations()} - {*self._store.journal.grants}
        doubtful = unowned or ended_grants(granted, Occasion.PASS, GrantFacts(view, checkpoint))
        asked = doubtful or turn
        live = await list_live_containers(self._deps.runtime) if asked else None
        tenants = await self._deps.tenants() if asked and self._deps.tenants else None
        evidence = Evidence(checkpoint, live, view=view, tenants=tenants or {})
        return Look(began, names, evidence)

    async def act(self, look: Look, under: Callable[[Grant], bool]) -> tuple[AllocationID, ...]:
        """Act, under the lock; returns the released grants. under: is its pod in admission?

        Raises JournalUnwritable.
        """
        read, asked = (self._store.journal, look.evidence), look.evidence.live is not None
        if read == self._settled.get(asked):
            return ()
        others = self._node.grants(CLAIMS)
        claimed = {gpu for one in others for gpu in one.gpus}
        names = {*self._deps.isolation.allocations()} - {one.id for one in others}
        evidence = replace(
            look.evidence,
            directories=dict.fromkeys(names, ()),
            tenants={g: pods for g, pods in look.evidence.tenants.items() if g not in claimed},
        )
        live = self._live()
        known = [a for a in live if a.id in look.granted and not under(a)]
        facts = GrantFacts(evidence.view, evidence.checkpoint, running=None)
        ended = ended_grants(known, Occasion.PASS, facts)
        with self._apart("disagreements"):
            found = tuple(disagreements(self._node.topology, live, evidence, ended))
            for one in set(found) - set(self.disagreements):
                logger.warning("state mismatch: %s: %s: %s", one.kind, one.what, one.detail)
            self.disagreements = found
        for nameless in self._live():
            with self._apart(f"allocation {nameless.id}"):
                for grant in named((nameless,), evidence.view):
                    logger.info("allocation %s belongs to %s", grant.id, grant.pod)
                    await self._store.put(grant)
                    await self._deps.isolation.update(grant)
        if evidence.live is not None:
            ended = ended_grants(known, Occasion.PASS, replace(facts, running=frozenset()))
        adopted = await self._adopt(look.began, evidence)
        due = self._due(look.began, ended - adopted, evidence)
        await self._store.release(due)
        await self._store.forget()
        await self._remove(evidence)
        await self._store.tidy()
        waiting = self._ended or self._unrecorded or self.disagreements or len(known) < len(live)
        released = any(one.released for one in self._store.journal.grants.values())
        self._settled[asked] = None if waiting or released else read
        return due

    def _apart(self, source: str) -> AbstractContextManager[None]:
        """Return an error in the body skips this source only; an error of the disk ends the
        pass."""
        about_all = (GpuManagerError, OSError)
        return self._deps.skipped.skipping("reconciler", source, unless=about_all)

    def _due(
        self, now: float, ended: Iterable[AllocationID], evidence: Evidence
    ) -> tuple[AllocationID, ...]:
        """Grants to release. The checkpoint alone proves nothing: the kubelet may have lost it."""
        if evidence.view is None and evidence.live is None:
            return ()
        # Since when without a break: a grant that looks alive in between starts again.
        self._ended = {name: self._ended.get(name, now) for name in ended}
        live = self._live()
        kept = lived_on(evidence.live or (), live) | computing(live, evidence)
        # Of evidence no device IDs are known, so that the checkpoint cannot show them.
        if adopted := frozenset(a.id for a in live if is_evidence(a)):
            kept |= adopted & _answered(evidence)
        self._store.lingering = kept & frozenset(self._ended)
        long = (n for n, at in self._ended.items() if now - at >= self._deps.grace)
        return tuple(name for name in long if name not in kept)

    async def _adopt(self, now: float, evidence: Evidence) -> frozenset[AllocationID]:
        """Add grants for devices and containers without one; returns their IDs.

        Only of pods that are listed as living: the checkpoint keeps ended pods for a while."""
        keys = unrecorded(self._live(), evidence.checkpoint or ())
        self._unrecorded = {key: self._unrecorded.get(key, now) for key in keys}
        long = {k for k, at in self._unrecorded.items() if now - at >= self._deps.grace}
        if evidence.view is None:
            return frozenset()
        held = tuple(h for h in evidence.checkpoint or () if (h.pod_uid, h.container) in long)
        booked, clock = replace(evidence, checkpoint=held), self._deps.clock()
        found: tuple[Grant, ...] = ()
        with self._apart("what the kubelet gave"):
            found = adopt_booked(self._node.ledger(DEVICE_PLUGINS), self._live(), booked, clock)
        with self._apart("what containers run with"):
            found += self._running((*self._live(), *found), evidence, clock)
        for one in found:
            with self._apart(f"allocation {one.id}"):
                logger.warning(
                    "allocation %s of %s added to the journal: %s", one.id, one.pod, one.why
                )
                await self._store.put(one)
                await self._deps.isolation.update(one)
        return frozenset(one.id for one in found)

    def _running(
        self, known: tuple[Grant, ...], evidence: Evidence, now: float
    ) -> tuple[Grant, ...]:
        """Grants for running containers of living pods that the journal does not have."""
        unknown = tuple(
            one
            for one in evidence.live or ()
            if allocation_of(one) is not None
            and not lived_on((one,), known)
            and not has_ended(one.container.pod_uid, evidence.view)
        )
        if not unknown:
            return ()
        limits = directories(self._deps.isolation)
        seen = Evidence(live=unknown, directories=limits, view=evidence.view)
        found = adopt_used(self._node.topology, known, seen, now)
        return tuple(one for one in found if one.pod is not None)

    async def _remove(self, evidence: Evidence) -> None:
        """Remove directories without an owner; none where the running containers are not known."""
        if evidence.live is None and evidence.checkpoint is None:
            return
        mounted = filter(None, map(allocation_of, evidence.live or ()))
        owned = {*self._store.journal.grants, *mounted}
        unowned = set(evidence.directories) - owned
        for name in unowned - _answered(evidence) if unowned else ():
            with self._apart(f"directory {name}"):
                logger.info(
                    "removing the directory of allocation %s: no grant or container uses it", name
                )
                await self._store.close(name)


def _answered(evidence: Evidence) -> frozenset[AllocationID]:
    """Allocations named by the Allocate responses in the kubelet's checkpoint."""
    named = (envs.get(ENV_ALLOCATION) for envs in given(evidence.checkpoint or ()).values())
    return frozenset(AllocationID(name) for name in named if name)
