"""What long launches were charged, held against what they had of the GPU.

Events around a launch longer than the GPU's time slices show how long it was there, slices of
neighbours included. Processes log when theirs were (`native/shim/core/time/logbook.h`); from the
logs of all containers follows what each had (`gpumanager.compute.occupancy_timeline`). The
difference is charged or given back at the next look, and the ratio of the last launches scales what
the next one is charged. That needs nothing of NVML, and is known as soon as a launch has ended. It
takes the word of containers; the audit finds those that take much more than they pay for.

A launch that has not ended is there until now. When one turns out to have ended earlier, what it
had a part in lately is reckoned anew, so that the sum is right in the end.

Pure: times and amounts come in as numbers, ns all of them; times are of CLOCK_MONOTONIC.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpumanager.compute.occupancy_timeline import (
    SLICE_NS,
    Interval,
    OccupancyTimeline,
    Process,
    Window,
    occupancy_timeline,
)
from gpumanager.compute.values import SECOND, Flight, Holder, Reading

PATIENCE_NS: Final = 30 * SECOND
"""A launch that did not end for so long is left alone by its process, too."""

MEMORY_NS: Final = SECOND
"""What ended longer ago is not reckoned anew."""

KEPT_NS: Final = 4 * SECOND
"""What shared the time of a launch that is there yet is known for as long."""

LATE_NS: Final = SECOND // 5
"""Launches that nobody expected to be long are told of when they have ended."""

LATELY_NS: Final = SECOND // 2
LEARNT_FROM: Final = 8
"""The last launches, of so short a time, say what the next is going to have."""

INTERVALS: Final = 256
"""So many launches are kept of one container: a quarter of a second of the shortest that are long.
A hostile one logs thousands, and each look would go through all of them."""

RATIO_LEAST: Final = 1 / 64

SCALE_MOST: Final = 4
"""Nothing is charged more often than so many times."""


@dataclass(frozen=True, slots=True)
class ChargedReading:
    """A container at a look. owed: what of its charges were our debts, or below 0, refunds."""

    reading: Reading
    owed: int = 0

    @property
    def short(self) -> int:
        """Charged for short launches so far that have ended."""
        going = sum(flight.charged for flight in self.reading.flights if not flight.ended)
        return self.reading.retired_ns - (self.reading.long_ns - going) - self.owed


@dataclass(frozen=True, slots=True)
class ChargeError:
    """What was charged too little (below 0: too much) for a launch that was there at that time."""

    begun: int
    ended: int
    amount: int


@dataclass(slots=True)
class LaunchLog:
    """A container. going: its launches that have not ended; lately: the last that have."""

    flights: tuple[Flight, ...]
    short: int
    going: list[Interval] = field(default_factory=list)
    lately: list[Interval] = field(default_factory=list)
    waits: int = 0
    before: Reading | None = None
    until: dict[Process, int] = field(default_factory=dict)

    def look(self, now: int, seen: ChargedReading) -> list[Interval]:
        """Returns the launches that have ended since."""
        flights, holder = seen.reading.flights, seen.reading.holder
        if flights is self.flights and not self.going:
            return []
        self.going = [
            _interval(holder, flight, now)
            for flight in flights
            if not flight.ended and flight.begun > now - PATIENCE_NS
        ]
        known = {flight.ticket for flight in self.flights if flight.ended}
        ended = [
            _interval(holder, flight, min(flight.ended, now))
            for flight in flights
            if flight.ended and flight.charged and flight.ticket not in known
        ]
        self.flights = flights
        for interval in ended:
            self._note(interval)
            self.until[interval.process] = interval.ended
        for interval in self.going:
            self._note(interval)
        self.lately = [*self.lately, *ended][-LEARNT_FROM:]
        return ended

    def _note(self, interval: Interval) -> None:
        """Whether it came when nothing of its process was there."""
        interval.fresh = interval.begun > self.until.get(interval.process, 0)

    def took(self, seen: ChargedReading) -> int:
        """What it was charged for short launches since the last look."""
        before, self.short = self.short, max(self.short, seen.short)
        return self.short - before

    def waited(self, seen: ChargedReading) -> int:
        """For how long the limiter made it wait since the last look."""
        before, self.waits = self.waits, seen.reading.waits
        return self.waits - before

    def turn(self, seen: ChargedReading, took: int) -> float:
        """The length of a launch, if it waited for the end of each since the last look; else 0."""
        before, self.before = self.before, seen.reading
        if before is None or self.going or took == 0:
            return 0.0
        launches = seen.reading.launches - before.launches
        awaited = seen.reading.awaited_ns - before.awaited_ns
        return took / launches if awaited >= took and launches > 0 else 0.0

    @property
    def ratio(self) -> float:
        """What its launches had, of what events say of them. Never more than all: where the shim
        thought less of one, for it cannot tell what others had, it will not of the next."""
        since = max((interval.ended for interval in self.lately), default=0) - LATELY_NS
        intervals = [interval for interval in self.lately if interval.ended >= since]
        if not intervals:
            return 1.0
        ratio = sum(interval.had for interval in intervals) / max(
            1, sum(interval.cost for interval in intervals)
        )
        return min(max(ratio, RATIO_LEAST), 1.0)


def _interval(holder: Holder, flight: Flight, until: int) -> Interval:
    """No more of what a container says than can be."""
    begun = max(min(flight.begun, until), until - PATIENCE_NS)
    cost = min(flight.cost, until - begun)
    charged = min(flight.charged, SCALE_MOST * (until - begun))
    return Interval((holder, flight.slot), begun, until, cost, charged)


def _newest(intervals: Iterable[Interval]) -> list[Interval]:
    """Of each container, no more than `INTERVALS`."""
    count: Counter[Holder] = Counter()
    kept = []
    for interval in reversed(list(intervals)):
        count[interval.holder] += 1
        if count[interval.holder] <= INTERVALS:
            kept.append(interval)
    return kept[::-1]


class LongLaunches:
    """Of one GPU. switching: the part of the time that is lost while slices go round."""

    def __init__(self, switching: float = 0.0) -> None:
        self._switching = switching
        self._logs: dict[Holder, LaunchLog] = {}
        self._ended: list[Interval] = []
        self._windows: list[Window] = []
        self._looked = 0

    def update(
        self, now: int, readings: Sequence[ChargedReading]
    ) -> dict[Holder, list[ChargeError]]:
        """What turned out, for each container; times must not run backwards."""
        self._look(now, readings)
        found = self._measure(self._timeline()) if self._unsure() else {}
        self._forget(now)
        return found

    def ratio(self, holder: Holder) -> float:
        """What events say of a container's long launches is to be multiplied by it."""
        return self._logs[holder].ratio

    def _look(self, now: int, readings: Sequence[ChargedReading]) -> None:
        known, self._logs = self._logs, {}
        took: dict[Holder, int] = {}
        waited: dict[Holder, int] = {}
        turns: dict[Holder, float] = {}
        for seen in readings:
            holder = seen.reading.holder
            log = known.get(holder) or LaunchLog(
                seen.reading.flights, seen.short, waits=seen.reading.waits
            )
            self._logs[holder] = log
            self._ended += log.look(now, seen)
            took[holder] = log.took(seen)
            if (waits := log.waited(seen)) > 0:
                waited[holder] = waits
            if 0 < (turn := log.turn(seen, took[holder])) < SLICE_NS / 2:
                turns[holder] = turn
        self._ended = _newest(interval for interval in self._ended if interval.holder in self._logs)
        if now > self._looked > 0:
            self._windows.append(Window(self._looked, now, took, waited, turns))
        self._looked = now

    def _intervals(self) -> list[Interval]:
        return self._ended + [interval for log in self._logs.values() for interval in log.going]

    def _timeline(self) -> OccupancyTimeline:
        return occupancy_timeline(self._intervals(), self._windows, self._switching)

    def _unsure(self) -> list[Interval]:
        return [interval for interval in self._ended if not interval.sure]

    def _measure(self, what: OccupancyTimeline) -> dict[Holder, list[ChargeError]]:
        found: defaultdict[Holder, list[ChargeError]] = defaultdict(list)
        for interval in self._unsure():
            interval.had = what.of(interval)
            amount = round(interval.had) - interval.charged
            interval.charged += amount
            if amount:
                found[interval.holder].append(ChargeError(interval.begun, interval.ended, amount))
        return found

    def _forget(self, now: int) -> None:
        """What ended before all that are there began is sure. What shared its time is kept for as
        long as it is needed."""
        going = min((one.begun for each in self._logs.values() for one in each.going), default=now)
        sure = max(going, now - MEMORY_NS)
        for interval in self._ended:
            interval.sure = interval.sure or interval.ended <= sure
        needed = max(min(going, now - LATE_NS), now - KEPT_NS)
        needed = min([needed, *(interval.begun for interval in self._unsure())])
        self._windows = [window for window in self._windows if window.until > needed]
        needed = min([needed, *(window.since for window in self._windows[:1])])
        self._ended = [interval for interval in self._ended if interval.ended > needed]
