"""What a meter can have counted since the last look: no more than time allows.

Processes of a container write its meter, and a hostile one writes anything: numbers that overflow,
that run backwards, that claim a year of GPU time in a tenth of a second. What decides about shares
sees counters that begin where the page stood and follow it as far as that is possible. So each
number is sound, sums stay below 2**63 for centuries, and a lie lasts no longer than its container.

Charged and retired time may run backwards a little: a launch is charged by estimate, and what was
too much is given back. Both follow a token bucket of GPU time.
"""

from dataclasses import dataclass
from typing import Any, Final, Self

from gpumanager.compute.values import SECOND

AT_ONCE_NS: Final = 60 * SECOND
"""Charged or given back in one moment, at most: twice the longest launch that is waited for."""

TIMES: Final = 2
"""Of the time, that may be charged for long: it is twice what a GPU has."""

AHEAD_NS: Final = 3600 * SECOND
"""The limiter's clock is no further ahead: that is 36 s of GPU time at one percent."""

THREADS: Final = 1 << 14
"""Of a container, that wait at once."""

LAUNCH_NS: Final = 50
"""No launch of a process takes less; there are up to `THREADS` of them at once."""

_MOST: Final = 2**62


@dataclass(slots=True)
class Counter:
    """raw: what the page said last; value: what is believed."""

    raw: int
    value: int

    def follow(self, raw: int, least: int, most: int) -> int:
        """Returns by how much it has changed."""
        change = max(least, -self.value, min(raw - self.raw, most))
        self.raw, self.value = raw, self.value + change
        return change


@dataclass(slots=True)
class GpuTime:
    """A counter of GPU time. credit: by how much it may change now."""

    counter: Counter
    credit: int = AT_ONCE_NS

    def follow(self, raw: int, elapsed: int) -> int:
        self.credit = min(AT_ONCE_NS, self.credit + TIMES * elapsed)
        self.credit -= abs(self.counter.follow(raw, -self.credit, self.credit))
        return self.counter.value


@dataclass(slots=True)
class MeterCounters:
    """Of one container on one device. at: when they were read last."""

    at: int
    charged: GpuTime
    retired: GpuTime
    long: GpuTime
    waits: Counter
    awaited: Counter
    launches: Counter

    @classmethod
    def begin(cls, now_ns: int, meter: Any, long_ns: int) -> Self:
        """What is in flight, and what was for long launches, is no more than can be."""
        charged = min(meter.charged_ns, _MOST)
        retired = max(0, charged - AT_ONCE_NS, min(meter.retired_ns, charged + AT_ONCE_NS))
        return cls(
            now_ns,
            GpuTime(Counter(meter.charged_ns, charged)),
            GpuTime(Counter(meter.retired_ns, retired)),
            GpuTime(Counter(long_ns, min(long_ns, charged))),
            _counter(_waits(meter)),
            _counter(meter.awaited_ns),
            _counter(meter.launches),
        )

    def follow(self, now_ns: int, meter: Any, long_ns: int) -> None:
        """The page as it is now; times must not run backwards."""
        elapsed, self.at = now_ns - self.at, now_ns
        self.charged.follow(meter.charged_ns, elapsed)
        self.retired.follow(meter.retired_ns, elapsed)
        self.long.follow(long_ns, elapsed)
        waited = THREADS * elapsed + AT_ONCE_NS
        self.waits.follow(_waits(meter), 0, waited)
        self.awaited.follow(meter.awaited_ns, 0, waited)
        self.launches.follow(meter.launches, 0, THREADS * elapsed // LAUNCH_NS + THREADS)


def _waits(meter: Any) -> int:
    waits: int = meter.throttled + meter.throttled_ns
    return waits


def _counter(raw: int) -> Counter:
    return Counter(raw, min(raw, _MOST))
