"""PreStartContainer, done: promises get their true owners, whatever was thought in Allocate.

A swap (the container that starts is of another pod than was thought) is healed here: it gets its
own limits, its pod's annotations are corrected, and it is counted. A container that was answered by
an agent whose journal has been lost since is recognised by the answer that the kubelet keeps.
"""

import logging

from gpumanager.deviceplugin.admission.admission import View
from gpumanager.deviceplugin.identity.lifecycle import Checkpoint
from gpumanager.deviceplugin.identity.settlement import (
    Container,
    NotSettled,
    contested,
    corrected,
    match,
    rivals,
    settle,
    takes,
)
from gpumanager.deviceplugin.surroundings import Surroundings
from gpumanager.grants.journal import Allocation
from gpumanager.grants.ledger import Ledger
from gpumanager.grants.promises import Promises
from gpumanager.isolation.answer import ENV_ALLOCATION
from gpumanager.recovery.adoption import adopt_booked, unrecorded
from gpumanager.recovery.evidence import Evidence, lived_on, who_lives
from gpumanager.virtual.values import AllocationID

logger = logging.getLogger(__name__)


class Settler:
    """One per allocator, under whose lock it works. mismatches: swaps so far."""

    def __init__(self, ledger: Ledger, promises: Promises, around: Surroundings) -> None:
        self._ledger = ledger
        self._promises = promises
        self._around = around
        self.mismatches = 0

    async def running(
        self, containers: tuple[Container, ...], view: View | None
    ) -> frozenset[AllocationID]:
        """Of the promises that would give way to them, those that a container runs with.

        A kubelet that has lost its books gives devices of running containers again. Asked without
        the lock, and only where the list of pods does not tell: the runtime takes its time.
        """
        if not contested(self._promises.live(), containers, view):
            return frozenset()
        live = await who_lives(self._around.runtime) or ()
        return lived_on(live, self._promises.live())

    async def settle(
        self,
        containers: tuple[Container, ...],
        view: View | None,
        checkpoint: Checkpoint,
        running: frozenset[AllocationID] = frozenset(),
    ) -> None:
        """Every one of them has its limits. Safe to repeat. Raises NotSettled.

        running: as of `running`, a moment ago.
        """
        self._promises.trust(running)
        for one in contested(self._promises.live(), containers, view):
            if one.allocation in running and takes(containers, one):
                raise NotSettled(f"its devices are in use: {one.pod} runs with them")
        await self._take_up(containers, view, checkpoint)
        for allocation, container in match(self._promises.live(), containers):
            await self._settle(allocation, container, view, checkpoint)

    async def _take_up(
        self, containers: tuple[Container, ...], view: View | None, checkpoint: Checkpoint
    ) -> None:
        """Containers that were answered by us, as the kubelet keeps it, and are not recorded."""
        names = {(one.uid, one.name) for one in containers}
        held = tuple(h for h in checkpoint if (h.pod_uid, h.container) in names)
        lacking = set(unrecorded(self._promises.live(), held))
        if not lacking:
            return
        envs = {k: e for k, e in (await self._around.books.envs()).items() if ENV_ALLOCATION in e}
        lacking &= set(envs)
        held = tuple(h for h in held if (h.pod_uid, h.container) in lacking)
        evidence = Evidence(held, envs, view=view)
        now = self._around.clock()
        for one in adopt_booked(self._ledger, self._promises.live(), evidence, now):
            logger.warning("%s is held again for %s: %s", one.allocation, one.pod, one.why)
            await self._promises.put(one)

    async def _settle(
        self,
        allocation: Allocation,
        container: Container,
        view: View | None,
        checkpoint: Checkpoint,
    ) -> None:
        pod = next((pod for pod in view or () if pod.uid == container.uid), None)
        settled = settle(self._ledger, allocation, container, pod)
        found = rivals(self._promises.live(), settled, checkpoint)
        if found.standing:
            raise NotSettled(f"its devices are still held by {found.standing[0].pod}")
        await self._promises.release(a.allocation for a in found.over)
        live = self._promises.live()
        others = [corrected(a, checkpoint) for a in live if a.allocation != settled.allocation]
        if not self._ledger.fits(others, settled):
            raise NotSettled(
                f"{settled.cores} cores and {settled.blocks} blocks do not fit on its GPU now"
            )
        await self._promises.serve(settled, settled.blocks)
        if settled != allocation:
            await self._promises.put(settled)
        if allocation.pod is None:
            self._say_whose(allocation, settled)

    def _say_whose(self, promised: Allocation, settled: Allocation) -> None:
        thought, pod = promised.candidate, settled.pod
        if pod is None:
            return
        if thought is not None and thought.uid != pod.uid:
            self.mismatches += 1
            logger.warning("promised for %s, started by %s: it has its own limits", thought, pod)
        if self._around.annotations is not None:
            gpus = self._ledger.topology.gpus
            self._around.annotations.correct(pod, tuple(g for g in gpus if g.uuid in settled.gpus))
