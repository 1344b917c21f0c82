"""Containers that take much more GPU time than they pay for, where a sample names one process.

A container that launches out of turn is charged too little, and its neighbours get less. NVML's
samples show it, if only slowly: each sample is a draw that names a process with the probability of
its share of the time. For each container the audit sums what its draws stand for, less what it paid
and less a tenth of the time, and charges what is beyond

    0.5 s + the time of two draws + 4 sqrt(sum over draws of (its time)² p (1 - p))

where p is the part of the time that it was charged lately. The root is the spread of that sum if
charges are right (binomial, at most), over the last minute. With a draw each half second a
container that pays nothing is found out within some seconds. One that pays for 30 % of the time
and takes 60 has a bound of 9 s, and reaches it after 45.

Pure: ns of CLOCK_MONOTONIC.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpumanager.compute.values import SECOND, Holder
from gpumanager.gpu.usage.samples import GpuUtilization

GROSS: Final = 0.1
"""Of the time, that may be taken and not be paid for: NVML's figures are no accounting."""

LEAST_NS: Final = SECOND // 2
SPREADS: Final = 4
FORGETTING_NS: Final = 60 * SECOND
CHARGED_NS: Final = 10 * SECOND
"""Over the last so long parts of charges are found: they come in lumps of a turn each."""

FRESH_NS: Final = SECOND // 5
"""A sample that is older says nothing of now. Drivers take one each sixth of a second or less
often; with those that take one a second most draws are lost, and nobody is charged too much."""

SILENCE_NS: Final = 6 * SECOND
"""Without an answer for as long all begins anew."""

LONGEST_NS: Final = SECOND * 12 // 10
"""No driver has longer sample periods: they last a second at most."""

SAME_NS: Final = SECOND // 50
"""Samples whose stamps lie closer than this are of one period."""

KNOWN_AFTER: Final = 3
"""Gaps between periods, before the shortest is taken for their length."""


@dataclass(slots=True)
class SamplePeriod:
    """The length of a driver's sample periods, learnt as the least gap between two stamps."""

    ended: int | None = None
    gaps: int = 0
    least: int = LONGEST_NS

    @property
    def length(self) -> int:
        """No period is longer, as far as is known."""
        return self.least if self.gaps >= KNOWN_AFTER else LONGEST_NS

    def enter(self, answer: GpuUtilization) -> None:
        for end in sorted(sample.ended_ns for sample in answer.samples or ()):
            gap = LONGEST_NS + 1 if self.ended is None else end - self.ended
            if gap <= SAME_NS:  # another process of the same period, or told before
                continue
            if gap <= LONGEST_NS:
                self.gaps += 1
                self.least = min(self.least, gap)
            self.ended = end


@dataclass(frozen=True, slots=True)
class Payer:
    """A container at a draw. charged: so far, all that we added included."""

    holder: Holder
    pids: frozenset[int]
    charged: int


@dataclass(slots=True)
class _Sum:
    """Of one container. charged: up to where it is counted. balance: taken and not paid, beyond
    what is allowed. spread: the variance of what it is seen to win. lately: what it was charged."""

    charged: int
    balance: float = 0.0
    spread: float = 0.0
    lately: float = 0.0

    def enter(self, span: int, won: float, charged: int) -> int:
        """In so much time it is seen to have won so much. Returns what it owes."""
        paid = charged - self.charged
        self.lately = self.lately * math.exp(-span / CHARGED_NS) + max(0, paid)
        part = min(1.0, self.lately / CHARGED_NS)
        self.spread = self.spread * math.exp(-span / FORGETTING_NS) + span**2 * part * (1 - part)
        balance = max(self.balance + won - paid - GROSS * span, -float(LEAST_NS))
        bound = LEAST_NS + 2 * span + SPREADS * math.sqrt(self.spread)
        debt = max(0, round(balance - bound))
        self.balance, self.charged = balance - debt, charged + debt
        return debt


@dataclass(frozen=True, slots=True)
class _News:
    """The newest samples that were told. ended: of their time. pids: percent of each with that
    stamp; listed: percent that all in the answer had together, which may tell of several samples.
    """

    ended: int
    pids: Mapping[int, int]
    listed: int


class Audit:
    """Of one GPU."""

    def __init__(self) -> None:
        self._period = SamplePeriod()
        self._news: _News | None = None
        self._drawn: int | None = None
        self._sums: dict[Holder, _Sum] = {}

    def enter(self, answer: GpuUtilization, payers: Sequence[Payer]) -> Mapping[Holder, int]:
        """What each owes now."""
        self._period.enter(answer)
        self._news = _news(answer) or self._news
        now, before = answer.asked_ns, self._drawn
        if before is not None and now - before < self._period.length:
            return {}
        self._drawn = now
        if answer.samples is None or before is None or now - before > SILENCE_NS:
            self._sums = {one.holder: _Sum(one.charged) for one in payers}
            return {}
        known = self._sums
        self._sums = {one.holder: known.get(one.holder) or _Sum(one.charged) for one in payers}
        percents, span = self._won(answer, payers), now - before
        owed = {}
        for one in payers:
            won = percents.get(one.holder, 0.0) / 100 * span
            if debt := self._sums[one.holder].enter(span, won, one.charged):
                owed[one.holder] = debt
        return owed

    def _won(self, answer: GpuUtilization, payers: Sequence[Payer]) -> Mapping[Holder, float]:
        """Percent of the time since the last draw, by the process it counts for."""
        now, news, length = answer.asked_ns, self._news, self._period.length
        won: defaultdict[Holder, float] = defaultdict(float)
        if news is None or now - news.ended > min(length, FRESH_NS) * 9 // 8:
            return won
        listed = news.listed if answer.busy is None else min(news.listed, answer.busy)
        for pid, percent in news.pids.items():
            whose = next((one.holder for one in payers if pid in one.pids), None)
            if whose is not None:
                won[whose] += listed * percent / sum(news.pids.values())
        return won


def _news(answer: GpuUtilization) -> _News | None:
    named = [one for one in answer.samples or () if one.percent > 0]
    if not named:
        return None
    ended = max(one.ended_ns for one in named)
    pids = {one.pid: one.percent for one in named if one.ended_ns == ended}
    return _News(ended, pids, min(100, sum(one.percent for one in named)))
