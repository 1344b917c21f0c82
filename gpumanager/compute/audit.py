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

from gpumanager.gpu.usage.samples import GpuUtilization

SECOND: Final = 1_000_000_000

Holder = tuple[str, int]
"""A container on one of its GPUs: the name of its allocation, and the place of the GPU in it."""

GROSS: Final = 0.1
"""Of the time, that may be taken and not be paid for: NVML's figures are no accounting."""

LEAST_NS: Final = SECOND // 2
SPREADS: Final = 4
FORGETTING_NS: Final = 60 * SECOND
CHARGED_NS: Final = 10 * SECOND
"""Over the last so long parts of charges are found: they come in lumps of a turn each."""

FRESH_NS: Final = SECOND // 5
"""Between two draws at least, and a sample that is older says nothing of now. Drivers take one each
sixth of a second or less often; with those that take one a second most draws are lost, and nobody
is charged too much."""

SILENCE_NS: Final = 6 * SECOND
"""Without an answer for as long all begins anew."""

LONGEST_NS: Final = SECOND * 12 // 10
"""No driver has longer sample periods: they last a second at most."""


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


class Audit:
    """Of one GPU."""

    def __init__(self) -> None:
        self._drawn: int | None = None
        self._sums: dict[Holder, _Sum] = {}

    def enter(self, answer: GpuUtilization, payers: Sequence[Payer]) -> Mapping[Holder, int]:
        """What each owes now."""
        now, before = answer.asked_ns, self._drawn
        if before is not None and now - before < FRESH_NS:
            return {}
        self._drawn = now
        if answer.samples is None or before is None or now - before > SILENCE_NS:
            self._sums = {one.holder: _Sum(one.charged) for one in payers}
            return {}
        known = self._sums
        self._sums = {one.holder: known.get(one.holder) or _Sum(one.charged) for one in payers}
        percents, span = _won(answer, payers), now - before
        owed = {}
        for one in payers:
            won = percents.get(one.holder, 0.0) / 100 * span
            if debt := self._sums[one.holder].enter(span, won, one.charged):
                owed[one.holder] = debt
        return owed


def _won(answer: GpuUtilization, payers: Sequence[Payer]) -> Mapping[Holder, float]:
    """Percent of the time since the last draw, by the process it counts for: those with the newest
    stamp share what all in the answer had together, which may tell of several samples."""
    named = [one for one in answer.samples or () if one.percent > 0]
    ended = max((one.ended_ns for one in named), default=0)
    won: defaultdict[Holder, float] = defaultdict(float)
    if not named or answer.asked_ns - ended > FRESH_NS:
        return won
    newest = [one for one in named if one.ended_ns == ended]
    listed = min(
        100, sum(one.percent for one in named), 100 if answer.busy is None else answer.busy
    )
    for sample in newest:
        whose = next((one.holder for one in payers if sample.pid in one.pids), None)
        if whose is not None:
            won[whose] += listed * sample.percent / sum(one.percent for one in newest)
    return won
