"""The shares of all GPUs, decided anew at each look at the meters.

Knows what it saw and nothing else: no clock, no driver, no page. Who starts it anew loses
the trims and a moment's histories; until they are learnt again every container has its promise.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpumanager.compute.demand import Demand
from gpumanager.compute.fair import Claim, offers
from gpumanager.compute.history import History
from gpumanager.compute.periods import LONGEST_NS, Period, Periods
from gpumanager.compute.trim import Evidence, Trim
from gpumanager.compute.values import MILLION, SECOND, Grant, Holder, Reading
from gpumanager.gpu.samples import Answer, Answers
from gpumanager.gpu.values import GpuUUID

LATELY_NS: Final = SECOND // 2
"""Over how long it is told what others took."""


@dataclass(slots=True)
class Member:
    """One container on one GPU, and what is known of it."""

    reading: Reading
    history: History = field(default_factory=History)
    demand: Demand = field(default_factory=Demand)
    trim: Trim = field(default_factory=Trim)

    def look(self, now: int, reading: Reading) -> None:
        self.reading = reading
        self.history.enter(now, reading)
        self.demand.update(now, reading, self.history)
        self.trim.expire(now)

    def claim(self) -> Claim:
        reading = self.reading
        return Claim(reading.promise, self.demand.want, max(reading.ceiling, reading.promise))

    def took(self, now: int) -> float:
        """The share of the GPU that it took lately."""
        return self.history.share(now, LATELY_NS) * self.trim.ratio

    def learn(self, period: Period) -> None:
        """From a period in which the limiter held it back."""
        history, reading = self.history, self.reading
        known = history.reaches(period.begin) and history.reaches(period.end)
        if not known or not history.waited(period.begin, period.end):
            return
        own = [percent for pid, percent in period.percents.items() if pid in reading.pids]
        in_flight = history.cost() + reading.burst_ns * max(reading.promise, self.demand.want)
        charged = history.charged(period.begin, period.end)
        self.trim.learn(Evidence(period, min(100, sum(own)), len(own), charged, in_flight))


class SharedGpu:
    """One GPU, and the containers on it."""

    def __init__(self) -> None:
        self._members: dict[Holder, Member] = {}
        self._periods = Periods()
        self._strangers = 0.0
        self._strangers_until = 0

    def tick(
        self, now: int, readings: Sequence[Reading], answer: Answer | None
    ) -> dict[Holder, Grant]:
        """The grants of those that have a limit."""
        self._look(now, [reading for reading in readings if reading.limited])
        if answer is not None:
            self._learn(answer)
        if now > self._strangers_until:
            self._strangers = 0.0
        return self._grants(now)

    def _look(self, now: int, readings: Sequence[Reading]) -> None:
        known = self._members
        self._members = {
            reading.holder: known.get(reading.holder) or Member(reading) for reading in readings
        }
        for reading in readings:
            self._members[reading.holder].look(now, reading)

    def _learn(self, answer: Answer) -> None:
        for period in self._periods.enter(answer):
            for member in self._members.values():
                member.learn(period)
            self._strangers = self._taken_by_strangers(period.percents)
            self._strangers_until = period.end + LONGEST_NS

    def _taken_by_strangers(self, percents: Mapping[int, int]) -> float:
        """What processes took that nobody limits."""
        limited = frozenset[int]().union(*(m.reading.pids for m in self._members.values()))
        return min(100, sum(p for pid, p in percents.items() if pid not in limited)) / 100

    def _grants(self, now: int) -> dict[Holder, Grant]:
        members = self._members.values()
        shares = offers([member.claim() for member in members], 1 - self._strangers)
        took = [member.took(now) for member in members]
        total = sum(took) + self._strangers
        return {
            member.reading.holder: Grant(
                rate_ppm=max(1, round(share / member.trim.ratio * MILLION)),
                others_ppm=_ppm(total - own),
            )
            for member, share, own in zip(members, shares, took, strict=True)
        }


def _ppm(share: float) -> int:
    return round(min(1.0, max(0.0, share)) * MILLION)


class Shares:
    """Of a node."""

    def __init__(self) -> None:
        self._gpus: dict[GpuUUID, SharedGpu] = {}

    def tick(self, now: int, readings: Iterable[Reading], answers: Answers) -> dict[Holder, Grant]:
        """What each container may have until the next look; times must not run backwards.

        answers: those that have come since the last look, by the UUIDs that the readings use.
        """
        by_gpu: defaultdict[GpuUUID, list[Reading]] = defaultdict(list)
        for reading in readings:
            by_gpu[reading.gpu].append(reading)
        self._gpus = {gpu: self._gpus.get(gpu) or SharedGpu() for gpu in by_gpu}
        grants: dict[Holder, Grant] = {}
        for gpu, own in by_gpu.items():
            grants |= self._gpus[gpu].tick(now, own, answers.get(gpu))
        return grants
