"""An allocator whose answers to the kubelet are timed.

The allocator knows nothing of this; the device plugin is handed the one that is timed.
"""

from collections.abc import Collection, Sequence

from gpumanager.deviceplugin.admission.transaction import Transaction
from gpumanager.deviceplugin.dependencies import Dependencies
from gpumanager.deviceplugin.device_ledger import ids_of
from gpumanager.deviceplugin.identity.resolution import NotResolved
from gpumanager.gpu.values import Topology
from gpumanager.grants.grant import Claimant, Refused, State
from gpumanager.grants.journal import Journal, differences
from gpumanager.ids import AllocationID
from gpumanager.isolation.edits import ContainerEdits
from gpumanager.monitor.admissions import AdmissionKind
from gpumanager.monitor.metrics.latency import CALLS, Latencies
from gpumanager.recovery.allocator import NodeAllocator


class TimedAllocator(NodeAllocator):
    """An allocator whose answers to the kubelet are timed."""

    def __init__(self, topology: Topology, deps: Dependencies, latencies: Latencies) -> None:
        super().__init__(topology, deps)
        self._latencies = latencies
        self.recovered = False
        """Whether the journal is loaded."""

    async def take_up(self) -> None:
        await super().take_up()
        self.recovered = True

    async def preferred(
        self,
        resource: str,
        available: Collection[str],
        must_include: Collection[str],
        size: int,
    ) -> tuple[str, ...]:
        answer = super().preferred(resource, available, must_include, size)
        return await self._latencies.timed(CALLS[0], resource, answer)

    async def allocate(self, resource: str, ids: Collection[str]) -> ContainerEdits | Refused:
        who = asking(self._tracker.open)
        answered = await self._latencies.timed(CALLS[1], resource, super().allocate(resource, ids))
        if isinstance(answered, Refused):
            self._latencies.admissions.add(AdmissionKind.REFUSED, who, answered.text)
        return answered

    async def pre_start(self, resource: str, ids: Collection[str]) -> None:
        before = self.journal
        try:
            await self._latencies.timed(CALLS[2], resource, super().pre_start(resource, ids))
        except NotResolved as error:
            who = holder(before, resource, ids)
            self._latencies.admissions.add(AdmissionKind.PUT_OFF, who, str(error))
            raise
        for name in healed(before, self.journal):
            one = self.journal.grants[AllocationID(name)]
            self._latencies.healed += 1
            self._latencies.admissions.add(AdmissionKind.SWAPPED, one.pod, str(one.candidate))


def asking(open_: Transaction | None) -> Claimant | None:
    """The pod being admitted, where that is one pod for certain."""
    one = open_.candidate if open_ else None
    return (
        Claimant(one.pod.uid, one.pod.namespace, one.pod.name, one.container.name) if one else None
    )


def holder(journal: Journal, resource: str, ids: Collection[str]) -> Claimant | None:
    """The pod that these devices were granted to, as far as known."""
    held = (one for one in journal.live() if set(ids_of(one, resource)) == set(ids))
    return next((one.pod or one.candidate for one in held), None)


def healed(before: Journal, after: Journal) -> Sequence[str]:
    """Confirmed in between, for another pod than the one that was expected."""
    return [
        one.id
        for one in differences(before, after)[1]
        if one.state is State.CONFIRMED
        and one.pod is not None
        and one.candidate is not None
        and one.pod.uid != one.candidate.uid
        and ((known := before.get(one.id)) is None or known.pod != one.pod)
    ]
