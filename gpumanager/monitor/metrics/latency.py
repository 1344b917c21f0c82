"""How long the kubelet waits for us: each call timed from outside of whoever answers it."""

import time
from collections import Counter
from collections.abc import Awaitable, Iterable
from itertools import product
from typing import Final, TypeVar

from prometheus_client import Histogram

from gpumanager.grants.refusals import Refused, RetryLater
from gpumanager.monitor.events import Events
from gpumanager.names import VCORE, VMEMORY

T = TypeVar("T")

BOUNDS: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 1.0, 3.0, 10.0)
"""Seconds. 0.2 is what one look at the kubelet may take."""

SECONDS_NAME: Final = "gpumanager_rpc_duration_seconds"
SECONDS_HELP: Final = "How long the kubelet waited for an answer"
SECONDS_LABELS: Final = ("rpc", "resource")

CALLS: Final = ("GetPreferredAllocation", "Allocate", "PreStartContainer")
RESOURCES: Final = (VCORE, VMEMORY)
OUTCOMES: Final = ("answered", "refused", "retry", "failed")
"""refused: the pod fails, and one with a claim waits; retry: the kubelet asks again; failed: an
error of ours."""


class Latencies:
    """How long each call took, by call and resource, and what came of it; there from the start."""

    def __init__(self) -> None:
        self.seconds = Histogram(
            SECONDS_NAME, SECONDS_HELP, SECONDS_LABELS, buckets=BOUNDS, registry=None
        )
        self.outcomes = Counter[tuple[str, str, str]]()
        self.refusals = Counter[str]()
        """Of claims, by reason."""
        self.expect(CALLS, RESOURCES)
        self.events = Events()
        """What went otherwise than planned."""

    def expect(
        self, calls: Iterable[str], resources: Iterable[str], refusals: Iterable[str] = ()
    ) -> None:
        """From now on these are shown, though nobody may ever call. refusals: reasons."""
        self.refusals.update(dict.fromkeys(refusals, 0))
        for call, name in product(calls, tuple(resources)):
            self.seconds.labels(call, name)
            self.outcomes.update({(call, name, one): 0 for one in OUTCOMES})

    async def timed(self, call: str, resource: str, answer: Awaitable[T]) -> T:
        began, outcome = time.perf_counter(), "failed"
        try:
            result = await answer
            outcome = "answered"
            if isinstance(result, Refused):
                outcome = "refused"
                if resource not in RESOURCES:
                    self.refusals[result.reason or "other"] += 1
        except RetryLater:
            outcome = "retry"
            raise
        else:
            return result
        finally:
            if (call, resource, outcome) in self.outcomes:
                self.seconds.labels(call, resource).observe(time.perf_counter() - began)
                self.outcomes[call, resource, outcome] += 1
