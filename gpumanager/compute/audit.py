"""Containers that take much more GPU time than they pay for, where a sample names one process.

A container that bypasses its limiter, or whose kernels its timing events do not see, is charged too
little, and its neighbours get less. NVML's samples show it, if only slowly: each sample is a draw
that names a process with the probability of its share of the time. For each container the audit
sums what its draws stand for, less what it paid and less a tenth of the time, and charges what is
beyond

    0.5 s + the time of two draws + 4 sqrt(sum over draws of (its time)² p (1 - p))

where p is the part of the time that it was charged lately. The root is the spread of that sum if
charges are right (binomial, at most), over the last minute. With a draw each half second a
container that pays nothing is found out within some seconds. One that pays for 30 % of the time
and takes 60 has a bound of 9 s, and reaches it after 45.

A container that was found out is not believed for a minute: what it takes is what draws named, or
what it says where that is more. Else the launches of its neighbours, which last longer while it has
the GPU, would pass for their own time.

Draws of unknown processes, such as those that lived for a moment only, count for the containers of
which a process has just ended. A process that is named again a second later has not ended.

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
"""Of the time, that may be taken and not be paid for: it is no accounting, and NVML's figures may
count as busy what no timing event does."""

LEAST_NS: Final = SECOND // 2
SPREADS: Final = 4
FORGETTING_NS: Final = 60 * SECOND
CHARGED_NS: Final = 10 * SECOND
"""Over the last so long parts of charges are found: they come in lumps of a kernel each."""

FRESH_NS: Final = SECOND // 5
"""A sample that is older says nothing of now. Drivers take one each sixth of a second or less
often; with those that take one a second most draws are lost, and nobody is charged too much."""

DISBELIEVED_NS: Final = 60 * SECOND
"""After something was collected last."""

LASTING_NS: Final = SECOND
"""A process that nobody knows and that is named for longer has not left."""

LASTS_NS: Final = 60 * SECOND
"""A process that was not named for as long is forgotten."""

SILENCE_NS: Final = 6 * SECOND
"""Without an answer for as long all begins anew."""

LONGEST_NS: Final = SECOND * 12 // 10
"""No driver has longer sample periods: they last a second at most."""

SAME_NS: Final = SECOND // 50
"""Samples whose stamps lie closer than this are of one period."""

KNOWN_AFTER: Final = 3
"""Gaps between periods, before the shortest is taken for their length."""

LEAST_UNKNOWN: Final = 0.005
"""A smaller share of processes of no container is nothing."""

UNKNOWN_FORGETTING_NS: Final = 5 * SECOND
"""Of what was seen of them, a third is remembered after as long."""

UNKNOWN_FORGOTTEN_NS: Final = 10 * SECOND
"""Where no answer has come for as long, nothing is known of them."""


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
    """A container at a draw. charged: by its meter, all that we added included; in_flight: of that,
    for work not known to have ended. unpaid: a launch is under way that pays when it has ended.
    left: a process of it has ended since the last draw. listed: samples have named one of it."""

    holder: Holder
    pids: frozenset[int]
    charged: int
    in_flight: int = 0
    unpaid: bool = False
    left: bool = False
    listed: bool = True


@dataclass(slots=True)
class _Sum:
    """Of one container. charged: up to where it is counted. balance: taken and not paid, beyond
    what is allowed. spread: the variance of what it is seen to win. lately: what it was charged,
    and won what draws stood for. believed_from: when its own word is enough again. paid: what it
    was charged, but for what we added. ahead: of that, for a launch that is going to pay itself,
    and ahead_from: what was paid when we began to."""

    charged: int
    balance: float
    spread: float = 0.0
    lately: float = 0.0
    won: float = 0.0
    believed_from: int = 0
    paid: int = 0
    ahead: int = 0
    ahead_from: int = 0

    def enter(self, span: int, won: float, one: Payer) -> int:
        """In so much time it is seen to have won so much. Returns what it owes."""
        paid, self.charged = one.charged - self.charged, one.charged
        self.paid += paid
        back = 0 if one.unpaid else min(self.ahead, max(0, self.paid - self.ahead_from))
        self.ahead = self.ahead if one.unpaid else 0
        keep = math.exp(-span / CHARGED_NS)
        self.lately = self.lately * keep + max(0, paid)
        self.won = self.won * keep + won
        part = min(1.0, self.lately / CHARGED_NS)
        keep = math.exp(-span / FORGETTING_NS)
        self.spread = self.spread * keep + span**2 * part * (1 - part)
        balance = self.balance + won - paid + back - GROSS * span
        self.balance = max(balance, -float(LEAST_NS + one.in_flight))
        bound = LEAST_NS + 2 * span + SPREADS * math.sqrt(self.spread)
        debt = max(0, round(self.balance - bound))
        self.balance -= debt
        if debt and one.unpaid:
            self.ahead_from = self.ahead_from if self.ahead else self.paid
            self.ahead += debt
        self.charged += debt - back
        return debt - back


@dataclass(frozen=True, slots=True)
class _News:
    """The newest samples that were told. ended: of their time. pids: percent of each with that
    stamp; listed: percent that all in the answer had together, which may tell of several samples.
    """

    ended: int
    pids: Mapping[int, int]
    listed: int


class Audit:
    """Of one GPU. collected: what each container was charged here in all."""

    def __init__(self) -> None:
        self._period = SamplePeriod()
        self._news: _News | None = None
        self._drawn: int | None = None
        self._sums: dict[Holder, _Sum] = {}
        self._unknown: dict[int, tuple[int, int]] = {}
        self.collected: dict[Holder, int] = {}

    def enter(self, answer: GpuUtilization, payers: Sequence[Payer]) -> Mapping[Holder, int]:
        """What each owes now; below 0: gets back."""
        self._period.enter(answer)
        self._news = _news(answer) or self._news
        now, before = answer.asked_ns, self._drawn
        if before is not None and now - before < min(self._period.length, LONGEST_NS):
            return {}
        self._drawn = now
        known = self._sums
        self._sums = {one.holder: known.get(one.holder) or _begin(one) for one in payers}
        if answer.samples is None or before is None or now - before > SILENCE_NS:
            self._sums = {one.holder: _begin(one) for one in payers}
            return {}
        return self._draw(answer, payers, now - before)

    def seen(self, holder: Holder) -> float:
        """The share that draws say that it takes; 0 of one that is believed."""
        known = self._sums.get(holder)
        if known is None or self._drawn is None or self._drawn >= known.believed_from:
            return 0.0
        return min(1.0, known.won / CHARGED_NS)

    def _draw(
        self, answer: GpuUtilization, payers: Sequence[Payer], span: int
    ) -> Mapping[Holder, int]:
        percents = self._won(answer, payers)
        owed = {}
        for one in payers:
            known = self._sums[one.holder]
            if debt := known.enter(span, percents.get(one.holder, 0.0) / 100 * span, one):
                owed[one.holder] = debt
                known.believed_from = answer.asked_ns + DISBELIEVED_NS
                self.collected[one.holder] = self.collected.get(one.holder, 0) + debt
        return owed

    def _won(self, answer: GpuUtilization, payers: Sequence[Payer]) -> Mapping[Holder, float]:
        """Percent of the time since the last draw, by the process it counts for."""
        now, news, length = answer.asked_ns, self._news, self._period.length
        age = now - news.ended if news is not None else 2 * LONGEST_NS
        listed = news.listed if news is not None and age <= length * 9 // 8 else 0
        busy = answer.busy if answer.busy is not None else listed
        listed = min(listed, busy)
        won: defaultdict[Holder, float] = defaultdict(float)
        nobodys = float(busy - listed)
        if news is not None and age <= min(length, FRESH_NS) * 9 // 8:
            for pid, percent in news.pids.items():
                part = listed * percent / sum(news.pids.values())
                whose = next((one.holder for one in payers if pid in one.pids), None)
                if whose is not None:
                    won[whose] += part
                elif not self._lasts(pid, now):
                    nobodys += part
        left = [one for one in payers if one.left]
        for one in left:
            won[one.holder] += nobodys * (1 - self._hidden(payers)) / len(left)
        return won

    def _lasts(self, pid: int, now: int) -> bool:
        """Whether a process that nobody knows was named before."""
        first, _ = self._unknown.get(pid, (now, now))
        recent = ((one, seen) for one, seen in self._unknown.items() if now - seen[1] < LASTS_NS)
        self._unknown = {**dict(recent), pid: (first, now)}
        return now - first >= LASTING_NS

    def _hidden(self, payers: Sequence[Payer]) -> float:
        """The part of all charges that containers paid that the driver may know by other pids."""
        hidden = sum(
            self._sums[one.holder].lately for one in payers if not (one.listed or one.left)
        )
        total = sum(known.lately for known in self._sums.values())
        return hidden / total if total > 0 else 0.0


def _news(answer: GpuUtilization) -> _News | None:
    named = [one for one in answer.samples or () if one.percent > 0]
    if not named:
        return None
    ended = max(one.ended_ns for one in named)
    pids = {one.pid: one.percent for one in named if one.ended_ns == ended}
    return _News(ended, pids, min(100, sum(one.percent for one in named)))


def _begin(one: Payer) -> _Sum:
    return _Sum(one.charged, -float(one.in_flight))


class UnknownProcesses:
    """Of one GPU. share: of its time, that processes of no container have. count: how many.

    One sample says that such a process had everything, or nothing. So its share is a mean over the
    last seconds: of each answer, the part of the time that it gives to processes nobody knows. An
    answer that gives each process what it had of its own samples is scaled down to the whole time.
    """

    def __init__(self) -> None:
        self.share = 0.0
        self._asked: int | None = None
        self._seen: dict[int, int] = {}

    @property
    def count(self) -> int:
        return len(self._seen)

    def enter(self, answer: GpuUtilization, known: frozenset[int]) -> float:
        """An answer, and the pids of all containers. Returns the share."""
        now, before = answer.asked_ns, self._asked
        percents = {one.pid: one.percent for one in answer.samples or () if one.percent > 0}
        if before is not None and not percents and now - before < LONGEST_NS:
            return self.share  # no sample was taken since; the next one is of this time, too
        self._asked = now
        keep = 0.0 if before is None else math.exp((before - now) / UNKNOWN_FORGETTING_NS)
        unknown = {pid: percent for pid, percent in percents.items() if pid not in known}
        part = 0.0 if before is None else sum(unknown.values()) / max(100, sum(percents.values()))
        share = self.share * keep + part * (1 - keep)
        self.share = share if share >= LEAST_UNKNOWN else 0.0
        self._seen |= dict.fromkeys(unknown, now)
        self._seen = {pid: at for pid, at in self._seen.items() if at > now - UNKNOWN_FORGETTING_NS}
        return self.share
