"""How long the kubelet waits for us: the allocator's three answers, timed from outside of it."""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from gpumanager.grants.grant import Refused, RetryLater
from gpumanager.monitor.admissions import Admissions
from gpumanager.names import VCORE, VMEMORY

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
        except RetryLater:
            outcome = "retry"
            raise
        else:
            return result
        finally:
            if (call, resource) in self.histograms:
                self.histograms[call, resource].observe(time.perf_counter() - began)
                self.outcomes[call, resource, outcome] += 1
