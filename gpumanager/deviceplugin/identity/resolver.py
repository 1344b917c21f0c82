"""PreStartContainer: confirms the pod of each grant by the kubelet's checkpoint.

Allocate could only expect a pod. If another pod's container starts (a swap), it gets the limits of
its own request, its pod's annotations are corrected, and the swap is counted. A container without a
grant, because the journal was lost since, is found by the Allocate response in the checkpoint.
"""

import logging

from gpumanager.deviceplugin.admission.transaction import View
from gpumanager.deviceplugin.dependencies import Dependencies
from gpumanager.deviceplugin.identity.adoption import adopt_booked
from gpumanager.deviceplugin.identity.device_checkpoint import given
from gpumanager.deviceplugin.identity.evidence import Evidence, list_live_containers, lived_on
from gpumanager.deviceplugin.identity.resolution import (
    BookedContainer,
    confirmed,
    contested,
    corrected,
    match,
    rivals,
    takes,
)
from gpumanager.deviceplugin.identity.verdict import Checkpoint
from gpumanager.grants.grant import Grant
from gpumanager.grants.node import Node
from gpumanager.grants.refusals import ONE_INTERFACE, NotResolved
from gpumanager.ids import AllocationID
from gpumanager.isolation.edits import ENV_ALLOCATION
from gpumanager.names import DEVICE_PLUGINS, VCORE

logger = logging.getLogger(__name__)


class IdentityResolver:
    """One per allocator, under whose lock it works. mismatches: swaps so far."""

    def __init__(self, node: Node, deps: Dependencies) -> None:
        self._node, self._store = node, node.store
        self._deps = deps
        self.mismatches = 0

    def _live(self) -> tuple[Grant, ...]:
        return self._node.grants(DEVICE_PLUGINS)

    async def running(
        self, containers: tuple[BookedContainer, ...], view: View | None
    ) -> frozenset[AllocationID]:
        """Of the grants that these containers contest, those that a running container uses.

        A kubelet without its checkpoint gives away devices of running containers. Called without
        the lock, and only if the list of pods does not answer it: the runtime may be slow.
        """
        if not contested(self._live(), containers, view):
            return frozenset()
        live = await list_live_containers(self._deps.runtime) or ()
        return lived_on(live, self._live())

    async def confirm(
        self,
        containers: tuple[BookedContainer, ...],
        view: View | None,
        checkpoint: Checkpoint,
        running: frozenset[AllocationID] = frozenset(),
    ) -> None:
        """Confirm each of them and set its limits. Safe to repeat. Raises NotResolved.

        running: as of `running`, a moment ago.
        """
        self._store.clear_suspect(running)
        for one in contested(self._live(), containers, view) if running else ():
            if one.id in running and takes(containers, one):
                raise NotResolved(f"its devices are in use: {one.pod} runs with them")
        await self._take_up(containers, view, checkpoint)
        for allocation, container in match(self._live(), containers):
            await self._confirm(allocation, container, view, checkpoint)

    async def _take_up(
        self, containers: tuple[BookedContainer, ...], view: View | None, checkpoint: Checkpoint
    ) -> None:
        """Restore grants of containers that we answered, by the kubelet's checkpoint."""
        names = {(one.uid, one.name) for one in containers}
        held = tuple(h for h in checkpoint if (h.pod_uid, h.container) in names)
        ours = {key for key, envs in given(held).items() if ENV_ALLOCATION in envs}
        held = tuple(h for h in held if (h.pod_uid, h.container) in ours)
        ledger, now = self._node.ledger(DEVICE_PLUGINS), self._deps.clock()
        for one in adopt_booked(ledger, self._live(), Evidence(held, view=view), now):
            logger.warning("allocation %s restored for %s: %s", one.id, one.pod, one.why)
            await self._store.put(one)

    async def _confirm(
        self,
        allocation: Grant,
        container: BookedContainer,
        view: View | None,
        checkpoint: Checkpoint,
    ) -> None:
        pod = next((pod for pod in view or () if pod.uid == container.uid), None)
        owned = confirmed(self._node.ledger(DEVICE_PLUGINS), allocation, container, pod)
        # The kubelet prepares a claim once: its second pod is not asked about by way of the driver.
        if owned.pod and (claim := self._deps.claim_of(owned.pod)):
            raise NotResolved(f"{owned.pod} asks for {VCORE} beside {claim}: {ONE_INTERFACE}")
        over, standing = rivals(self._live(), owned, checkpoint)
        if standing:
            raise NotResolved(f"its devices are still held by {standing[0].pod}")
        await self._store.release(a.id for a in over)
        live = self._live()
        others = [corrected(a, checkpoint) for a in live if a.id != owned.id]
        if not self._node.ledger(DEVICE_PLUGINS).fits(others, owned):
            raise NotResolved(
                f"{owned.cores} cores and {owned.blocks} blocks do not fit on its GPU now"
            )
        await self._deps.isolation.update(owned)
        if owned != allocation:
            await self._store.put(owned)
        expected, gotten = allocation.candidate, owned.pod
        if allocation.pod is not None or gotten is None:
            return
        if expected is not None and expected.uid != gotten.uid:
            self.mismatches += 1
            self._deps.events.swapped(gotten, expected)
            logger.warning(
                "the kubelet gave the grant of %s to %s, which gets the limits of its own request",
                expected,
                gotten,
            )
        if self._deps.annotate is not None:
            gpus = self._node.topology.gpus
            self._deps.annotate(gotten, tuple(g for g in gpus if g.uuid in owned.gpus))
