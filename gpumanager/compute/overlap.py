"""What long launches were charged, held against what they had of the GPU.

Events around a launch longer than the GPU's time slices show how long it was there, slices of
neighbours included. Processes log when theirs were (`native/shim/core/time/logbook.h`); who sees those
of all containers can tell what each had (`gpumanager.compute.course`). The difference is charged or
given back at the next look, and the ratio of the last launches is what the next one is charged.
That needs nothing of NVML, and is known as soon as a launch has ended. It takes the word of
containers; the audit finds those that take much more than they pay for.

A launch that has not ended is there until now. When one turns out to have ended earlier, what it
had a part in lately is reckoned anew, so that the sum is right in the end.

Pure: times and amounts come in as numbers, ns all of them; times are of CLOCK_MONOTONIC.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpumanager.compute.course import SLICE_NS, Course, Process, Span, Stay, course
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

STAYS: Final = 256
"""So many launches are kept of one container: a quarter of a second of the shortest that are long.
A hostile one logs thousands, and each look would go through all of them."""

RATIO_LEAST: Final = 1 / 64

SCALE_MOST: Final = 4
"""Nothing is charged more often than so many times."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A container at a look. owed: what of its charges were our debts, or below 0, refunds."""

    reading: Reading
    owed: int = 0

    @property
    def short(self) -> int:
        """Charged for short launches so far that have ended."""
        going = sum(flight.charged for flight in self.reading.flights if not flight.ended)
        return self.reading.retired_ns - (self.reading.long_ns - going) - self.owed


@dataclass(frozen=True, slots=True)
class Wrong:
    """What was charged too little (below 0: too much) for a launch that was there at that time."""

    begun: int
    ended: int
    amount: int


@dataclass(slots=True)
class Guest:
    """A container. going: its launches that have not ended; lately: the last that have."""

    flights: tuple[Flight, ...]
    short: int
    going: list[Stay] = field(default_factory=list)
    lately: list[Stay] = field(default_factory=list)
    waits: int = 0
    before: Reading | None = None
    until: dict[Process, int] = field(default_factory=dict)

    def look(self, now: int, visit: Visit) -> list[Stay]:
        """Returns the launches that have ended since."""
        flights, holder = visit.reading.flights, visit.reading.holder
        if flights is self.flights and not self.going:
            return []
        self.going = [
            _stay(holder, flight, now)
            for flight in flights
            if not flight.ended and flight.begun > now - PATIENCE_NS
        ]
        known = {flight.ticket for flight in self.flights if flight.ended}
        ended = [
            _stay(holder, flight, min(flight.ended, now))
            for flight in flights
            if flight.ended and flight.charged and flight.ticket not in known
        ]
        self.flights = flights
        for stay in ended:
            self._note(stay)
            self.until[stay.process] = stay.ended
        for stay in self.going:
            self._note(stay)
        self.lately = [*self.lately, *ended][-LEARNT_FROM:]
        return ended

    def _note(self, stay: Stay) -> None:
        """Whether it came when nothing of its process was there."""
        stay.fresh = stay.begun > self.until.get(stay.process, 0)

    def took(self, visit: Visit) -> int:
        """What it was charged for short launches since the last look."""
        before, self.short = self.short, max(self.short, visit.short)
        return self.short - before

    def waited(self, visit: Visit) -> int:
        """For how long the limiter made it wait since the last look."""
        before, self.waits = self.waits, visit.reading.waits
        return self.waits - before

    def turn(self, visit: Visit, took: int) -> float:
        """The length of a launch, if it waited for the end of each since the last look; else 0."""
        before, self.before = self.before, visit.reading
        if before is None or self.going or took == 0:
            return 0.0
        launches = visit.reading.launches - before.launches
        awaited = visit.reading.awaited_ns - before.awaited_ns
        return took / launches if awaited >= took and launches > 0 else 0.0

    @property
    def ratio(self) -> float:
        """What its launches had, of what events say of them. Never more than all: where the shim
        thought less of one, for it cannot tell what others had, it will not of the next."""
        since = max((stay.ended for stay in self.lately), default=0) - LATELY_NS
        stays = [stay for stay in self.lately if stay.ended >= since]
        if not stays:
            return 1.0
        ratio = sum(stay.had for stay in stays) / max(1, sum(stay.cost for stay in stays))
        return min(max(ratio, RATIO_LEAST), 1.0)


def _stay(holder: Holder, flight: Flight, until: int) -> Stay:
    """No more of what a container says than can be."""
    begun = max(min(flight.begun, until), until - PATIENCE_NS)
    cost = min(flight.cost, until - begun)
    charged = min(flight.charged, SCALE_MOST * (until - begun))
    return Stay((holder, flight.slot), begun, until, cost, charged)


def _newest(stays: Iterable[Stay]) -> list[Stay]:
    """Of each container, no more than `STAYS`."""
    count: Counter[Holder] = Counter()
    kept = []
    for stay in reversed(list(stays)):
        count[stay.holder] += 1
        if count[stay.holder] <= STAYS:
            kept.append(stay)
    return kept[::-1]


class Overlap:
    """Of one GPU. switching: the part of the time that is lost while slices go round."""

    def __init__(self, switching: float = 0.0) -> None:
        self._switching = switching
        self._guests: dict[Holder, Guest] = {}
        self._ended: list[Stay] = []
        self._spans: list[Span] = []
        self._looked = 0

    def update(self, now: int, visits: Sequence[Visit]) -> dict[Holder, list[Wrong]]:
        """What turned out, for each container; times must not run backwards."""
        self._look(now, visits)
        found = self._settle(self._course()) if self._unsure() else {}
        self._forget(now)
        return found

    def ratio(self, holder: Holder) -> float:
        """What events say of a container's long launches is to be multiplied by it."""
        return self._guests[holder].ratio

    def _look(self, now: int, visits: Sequence[Visit]) -> None:
        known, self._guests = self._guests, {}
        took: dict[Holder, int] = {}
        waited: dict[Holder, int] = {}
        turns: dict[Holder, float] = {}
        for visit in visits:
            holder = visit.reading.holder
            guest = known.get(holder) or Guest(
                visit.reading.flights, visit.short, waits=visit.reading.waits
            )
            self._guests[holder] = guest
            self._ended += guest.look(now, visit)
            took[holder] = guest.took(visit)
            if (waits := guest.waited(visit)) > 0:
                waited[holder] = waits
            if 0 < (turn := guest.turn(visit, took[holder])) < SLICE_NS / 2:
                turns[holder] = turn
        self._ended = _newest(stay for stay in self._ended if stay.holder in self._guests)
        if now > self._looked > 0:
            self._spans.append(Span(self._looked, now, took, waited, turns))
        self._looked = now

    def _stays(self) -> list[Stay]:
        return self._ended + [stay for guest in self._guests.values() for stay in guest.going]

    def _course(self) -> Course:
        return course(self._stays(), self._spans, self._switching)

    def _unsure(self) -> list[Stay]:
        return [stay for stay in self._ended if not stay.sure]

    def _settle(self, what: Course) -> dict[Holder, list[Wrong]]:
        found: defaultdict[Holder, list[Wrong]] = defaultdict(list)
        for stay in self._unsure():
            stay.had = what.of(stay)
            amount = round(stay.had) - stay.charged
            stay.charged += amount
            if amount:
                found[stay.holder].append(Wrong(stay.begun, stay.ended, amount))
        return found

    def _forget(self, now: int) -> None:
        """What ended before all that are there began is sure. What shared its time is kept for as
        long as it is needed."""
        going = min(
            (one.begun for each in self._guests.values() for one in each.going), default=now
        )
        sure = max(going, now - MEMORY_NS)
        for stay in self._ended:
            stay.sure = stay.sure or stay.ended <= sure
        needed = max(min(going, now - LATE_NS), now - KEPT_NS)
        needed = min([needed, *(stay.begun for stay in self._unsure())])
        self._spans = [span for span in self._spans if span.until > needed]
        needed = min([needed, *(span.since for span in self._spans[:1])])
        self._ended = [stay for stay in self._ended if stay.ended > needed]
