"""How much GPU time a container really takes for what it is charged: a slow correction.

The limiter charges what launches were measured to cost. Work that no hook sees, and costs that are
misjudged while others are on the GPU, make that differ from what the driver sees it take. The
ratio of both, over the last seconds, is what its rate has to be divided by.

It is believed only as far as nothing else explains the difference: the driver tells whole
percents, and what is charged may be in flight still. A use that hardly varies is always rounded the
same way, by half a point at most; the more it varies, the more roundings cancel. Only time in
which the limiter held the container back counts: otherwise its rate does not matter.
"""

from dataclasses import dataclass
from math import exp, sqrt
from typing import Final

from gpumanager.compute.periods import Period
from gpumanager.compute.values import SECOND

MEMORY_NS: Final = 4 * SECOND
"""How long evidence counts, in time that gives evidence."""

EXPIRES_NS: Final = 30 * SECOND
"""After so long without any, what was learnt may be of another program."""

LEAST_NS: Final = SECOND // 2
"""Less evidence than this is none."""

LOWEST: Final = 0.25
HIGHEST: Final = 4.0

STEADY: Final = 0.4
"""Standard deviation, in points, below which samples say nothing of what their rounding hides."""
VARIED: Final = 0.8
ROUNDING: Final = 0.6
ROUNDING_LEFT: Final = 0.15
"""What rounding may hide of the mean, in points: of steady samples, and of varied ones."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one period tells. percent: of its processes together. charged_ns: in all of it.

    processes: how many were listed, each with a rounding of its own. in_flight_ns: GPU time that
    may have been charged and not been taken yet.
    """

    period: Period
    percent: int
    processes: int
    charged_ns: float
    in_flight_ns: float


@dataclass(slots=True)
class Trim:
    """Of one container on one GPU. ratio: taken per charged, 1 while nothing is known."""

    ratio: float = 1.0
    _seen: int = 0
    _sampled: float = 0.0
    _measured: float = 0.0
    _charged: float = 0.0
    _points: float = 0.0
    _squares: float = 0.0

    def learn(self, evidence: Evidence) -> None:
        """One more period in which it was held back; in the order of time."""
        period = evidence.period
        if period.end - self._seen > EXPIRES_NS:
            self._forget(0.0)
        self._forget(exp((period.begin - period.end) / MEMORY_NS))
        self._seen = period.end
        self._sampled += period.length
        self._measured += period.length * evidence.percent / 100
        self._charged += evidence.charged_ns
        self._points += period.length * evidence.percent
        self._squares += period.length * evidence.percent**2
        self.ratio = self._ratio(max(1, evidence.processes), evidence.in_flight_ns)

    def expire(self, now: int) -> None:
        if self.ratio != 1.0 and now - self._seen > EXPIRES_NS:
            self.ratio = 1.0

    def _forget(self, factor: float) -> None:
        self._sampled *= factor
        self._measured *= factor
        self._charged *= factor
        self._points *= factor
        self._squares *= factor

    def _ratio(self, processes: int, in_flight: float) -> float:
        if self._sampled < LEAST_NS or self._charged <= 0:
            return 1.0
        explained = self._rounding() * processes / 100 * self._sampled + in_flight
        difference = self._measured - self._charged
        beyond = max(0.0, abs(difference) - explained)
        ratio = 1 + (beyond if difference > 0 else -beyond) / self._charged
        return min(HIGHEST, max(LOWEST, ratio))

    def _rounding(self) -> float:
        """What whole percents may hide of the mean, in points, by how much the samples vary."""
        mean = self._points / self._sampled
        spread = sqrt(max(0.0, self._squares / self._sampled - mean**2))
        part = min(1.0, max(0.0, (spread - STEADY) / (VARIED - STEADY)))
        return ROUNDING + part * (ROUNDING_LEFT - ROUNDING)
