"""How long the kubelet waits for us: the allocator's three answers, timed from outside of it.

The allocator knows nothing of this; the device plugin is handed the one that is timed.
"""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from gpumanager.deviceplugin.admission.admission import Transaction
from gpumanager.deviceplugin.admission.decision import Refused
from gpumanager.deviceplugin.allocator import Allocator
from gpumanager.deviceplugin.identity.settlement import NotSettled
from gpumanager.deviceplugin.surroundings import Surroundings
from gpumanager.gpu.values import Topology
from gpumanager.grants.journal import Claimant, Journal, State
from gpumanager.isolation.answer import Answer
from gpumanager.monitor.admissions import Admissions, Kind
from gpumanager.names import VCORE, VMEMORY
from gpumanager.virtual.values import AllocationID

T = TypeVar("T")

BOUNDS: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 1.0, 3.0, 10.0)
"""Seconds. 0.2 is what one look at the kubelet may take."""

CALLS: Final = ("GetPreferredAllocation", "Allocate", "PreStartContainer")
RESOURCES: Final = (VCORE, VMEMORY)
OUTCOMES: Final = ("answered", "refused", "retry", "failed")
"""refused: the pod fails; retry: the kubelet asks again; failed: an error of ours."""


@dataclass(slots=True)
class Histogram:
    """How many answers took how long."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    seconds: float = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds

    def buckets(self) -> Iterator[tuple[str, float]]:
        """Upper bound and how many took no longer, as Prometheus has it."""
        total = 0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self.counts, strict=True):
            total += count
            yield bound, total


class Latencies:
    """One histogram for each call and resource, there from the start."""

    def __init__(self) -> None:
        self.histograms = {(call, name): Histogram() for call in CALLS for name in RESOURCES}
        self.outcomes = Counter(
            {(call, name, one): 0 for call in CALLS for name in RESOURCES for one in OUTCOMES}
        )
        self.admissions = Admissions()
        """What went otherwise than planned."""
        self.healed = 0
        """Containers that were settled on another pod's admission: a swap, put right."""
        self.on_refusal: Callable[[str], None] = lambda _: None
        """Told why, for each pod that fails by our answer."""

    async def timed(self, call: str, resource: str, answer: Awaitable[T]) -> T:
        began, outcome = time.perf_counter(), "failed"
        try:
            result = await answer
            outcome = "answered"
            if isinstance(result, Refused):
                outcome = "refused"
                self.on_refusal(result.text)
        except NotSettled:
            outcome = "retry"
            raise
        else:
            return result
        finally:
            if (call, resource) in self.histograms:
                self.histograms[call, resource].observe(time.perf_counter() - began)
                self.outcomes[call, resource, outcome] += 1


class TimedAllocator(Allocator):
    """An allocator whose answers to the kubelet are timed."""

    def __init__(
        self, topology: Topology, surroundings: Surroundings, latencies: Latencies
    ) -> None:
        super().__init__(topology, surroundings)
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

    async def allocate(self, resource: str, ids: Collection[str]) -> Answer | Refused:
        who = asking(self._hearing.open)
        answered = await self._latencies.timed(CALLS[1], resource, super().allocate(resource, ids))
        if isinstance(answered, Refused):
            self._latencies.admissions.add(Kind.REFUSED, who, answered.text)
        return answered

    async def pre_start(self, resource: str, ids: Collection[str]) -> None:
        before = self.journal
        try:
            await self._latencies.timed(CALLS[2], resource, super().pre_start(resource, ids))
        except NotSettled as error:
            who = holder(before, resource, ids)
            self._latencies.admissions.add(Kind.PUT_OFF, who, str(error))
            raise
        for name in healed(before, self.journal):
            one = self.journal.allocations[AllocationID(name)]
            self._latencies.healed += 1
            self._latencies.admissions.add(Kind.SWAPPED, one.pod, str(one.candidate))


def asking(open_: Transaction | None) -> Claimant | None:
    """Who is being admitted, where that is one pod for certain."""
    one = open_.candidate if open_ else None
    return (
        Claimant(one.pod.uid, one.pod.namespace, one.pod.name, one.container.name) if one else None
    )


def holder(journal: Journal, resource: str, ids: Collection[str]) -> Claimant | None:
    """Whom these devices were promised to, as far as known."""
    held = (one for one in journal.live() if set(one.ids(resource)) == set(ids))
    return next((one.pod or one.candidate for one in held), None)


def healed(before: Journal, after: Journal) -> Sequence[str]:
    """Settled in between, on another pod than the one that was thought to be admitted."""
    return [
        name
        for name, one in after.allocations.items()
        if one.state is State.SETTLED
        and one.pod is not None
        and one.candidate is not None
        and one.pod.uid != one.candidate.uid
        and ((known := before.get(name)) is None or known.pod != one.pod)
    ]
