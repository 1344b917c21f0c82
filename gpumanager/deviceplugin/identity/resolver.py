"""PreStartContainer, done: promises get their true owners, whatever was thought in Allocate.

A swap (the container that starts is of another pod than was thought) is healed here: it gets its
own limits, its pod's annotations are corrected, and it is counted. A container that was answered by
an agent whose journal has been lost since is recognised by the answer that the kubelet keeps.
"""

import logging

from gpumanager.deviceplugin.admission.transaction import View
from gpumanager.deviceplugin.dependencies import Dependencies
from gpumanager.deviceplugin.device_ledger import DeviceLedger
from gpumanager.deviceplugin.identity.adoption import adopt_booked, unrecorded
from gpumanager.deviceplugin.identity.evidence import Evidence, lived_on, who_lives
from gpumanager.deviceplugin.identity.lifecycle import Checkpoint
from gpumanager.deviceplugin.identity.resolution import (
    BookedContainer,
    NotResolved,
    contested,
    corrected,
    match,
    rivals,
    settle,
    takes,
)
from gpumanager.grants.grant import Grant
from gpumanager.grants.store import GrantStore
from gpumanager.isolation.edits import ENV_ALLOCATION
from gpumanager.virtual.values import AllocationID

logger = logging.getLogger(__name__)


class IdentityResolver:
    """One per allocator, under whose lock it works. mismatches: swaps so far."""

    def __init__(self, ledger: DeviceLedger, store: GrantStore, deps: Dependencies) -> None:
        self._ledger = ledger
        self._store = store
        self._deps = deps
        self.mismatches = 0

    async def running(
        self, containers: tuple[BookedContainer, ...], view: View | None
    ) -> frozenset[AllocationID]:
        """Of the promises that would give way to them, those that a container runs with.

        A kubelet that has lost its books gives devices of running containers again. Asked without
        the lock, and only where the list of pods does not tell: the runtime takes its time.
        """
        if not contested(self._store.live(), containers, view):
            return frozenset()
        live = await who_lives(self._deps.runtime) or ()
        return lived_on(live, self._store.live())

    async def settle(
        self,
        containers: tuple[BookedContainer, ...],
        view: View | None,
        checkpoint: Checkpoint,
        running: frozenset[AllocationID] = frozenset(),
    ) -> None:
        """Every one of them has its limits. Safe to repeat. Raises NotResolved.

        running: as of `running`, a moment ago.
        """
        self._store.trust(running)
        for one in contested(self._store.live(), containers, view) if running else ():
            if one.id in running and takes(containers, one):
                raise NotResolved(f"its devices are in use: {one.pod} runs with them")
        await self._take_up(containers, view, checkpoint)
        for allocation, container in match(self._store.live(), containers):
            await self._settle(allocation, container, view, checkpoint)

    async def _take_up(
        self, containers: tuple[BookedContainer, ...], view: View | None, checkpoint: Checkpoint
    ) -> None:
        """Containers that were answered by us, as the kubelet keeps it, and are not recorded."""
        names = {(one.uid, one.name) for one in containers}
        held = tuple(h for h in checkpoint if (h.pod_uid, h.container) in names)
        lacking = set(unrecorded(self._store.live(), held))
        if not lacking:
            return
        envs = {k: e for k, e in (await self._deps.books.envs()).items() if ENV_ALLOCATION in e}
        lacking &= set(envs)
        held = tuple(h for h in held if (h.pod_uid, h.container) in lacking)
        evidence = Evidence(held, envs, view=view)
        now = self._deps.clock()
        for one in adopt_booked(self._ledger, self._store.live(), evidence, now):
            logger.warning("%s is held again for %s: %s", one.id, one.pod, one.why)
            await self._store.put(one)

    async def _settle(
        self,
        allocation: Grant,
        container: BookedContainer,
        view: View | None,
        checkpoint: Checkpoint,
    ) -> None:
        pod = next((pod for pod in view or () if pod.uid == container.uid), None)
        settled = settle(self._ledger, allocation, container, pod)
        found = rivals(self._store.live(), settled, checkpoint)
        if found.standing:
            raise NotResolved(f"its devices are still held by {found.standing[0].pod}")
        await self._store.release(a.id for a in found.over)
        live = self._store.live()
        others = [corrected(a, checkpoint) for a in live if a.id != settled.id]
        if not self._ledger.fits(others, settled):
            raise NotResolved(
                f"{settled.cores} cores and {settled.blocks} blocks do not fit on its GPU now"
            )
        await self._deps.isolation.update(settled)
        if settled != allocation:
            await self._store.put(settled)
        if allocation.pod is None:
            self._say_whose(allocation, settled)

    def _say_whose(self, promised: Grant, settled: Grant) -> None:
        thought, pod = promised.candidate, settled.pod
        if pod is None:
            return
        if thought is not None and thought.uid != pod.uid:
            self.mismatches += 1
            logger.warning("promised for %s, started by %s: it has its own limits", thought, pod)
        if self._deps.annotations is not None:
            gpus = self._ledger.topology.gpus
            self._deps.annotations.correct(pod, tuple(g for g in gpus if g.uuid in settled.gpus))
