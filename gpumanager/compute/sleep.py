"""When to leave a GPU alone: all its meters have stood for long, and nobody is seen on it.

A look at such a GPU finds what the last one found and grants what it granted, so that it need not
be taken: what was granted is only renewed. Whoever stirs wakes it at that very look. What a look
changes at rest is when the last one was; whoever wakes the GPU takes the last that was passed over
first, and then all is as if none had been.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpumanager.compute.values import SECOND, Grant, Holder, Reading
from gpumanager.gpu.samples import GpuUtilization

STILL_NS: Final = 4 * SECOND
"""For how long nothing must have changed. Nothing that is remembered for longer changes by time."""

RENEWED_NS: Final = SECOND // 2
"""Between two renewals: a third of a lease."""


@dataclass(slots=True)
class Sleep:
    """Of one GPU.

    readings: of the last look; still_since: when they last differed from those before; going:
    whether a launch is known to be under way. standing: what to renew; None of a GPU that is awake.
    slept: the last look that was passed over, None if none was; answer: the last that came then.
    """

    readings: Sequence[Reading] = ()
    still_since: int = 0
    going: bool = False
    standing: Mapping[Holder, Grant] | None = None
    renewed_at: int = 0
    slept: int | None = None
    answer: GpuUtilization | None = None

    def goes_on(self, now: int, readings: Sequence[Reading], answer: GpuUtilization | None) -> bool:
        """Whether this look may be passed over."""
        if readings != self.readings:
            flights = (flight for reading in readings for flight in reading.flights)
            self.going = any(not flight.ended for flight in flights)
            self.readings, self.still_since = readings, now
        silent = answer is None or not (answer.samples or answer.busy)
        still = now - self.still_since > STILL_NS and not self.going
        if self.standing is None or not still or not silent:
            return False
        self.slept, self.answer = now, answer or self.answer
        return True

    def renewed(self, now: int) -> dict[Holder, Grant]:
        """What was granted, again, if it is time."""
        if self.standing is None or now - self.renewed_at < RENEWED_NS:
            return {}
        self.renewed_at = now
        return dict(self.standing)

    def worked(self, now: int, grants: Mapping[Holder, Grant] | None) -> None:
        """A look was taken. grants: what may be renewed; None where it may be another next time."""
        self.slept, self.answer = None, None
        self.renewed_at = now
        self.standing = None
        if grants is not None:
            paid = {holder: replace(grant, debt_ns=0) for holder, grant in grants.items()}
            self.standing = paid
