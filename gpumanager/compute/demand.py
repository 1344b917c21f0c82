"""The demand of a container: the share of a GPU it would use now, estimated from its last moments.

* A container that the limiter made to wait wants all it may have; so does one that suddenly uses
  much more than was kept for it. Both hold from the next tick on for a moment, so that lent share
  is back at once.
* One that works and never waits wants what it uses, and a little room to grow.
* One that charges nothing wants nothing; that, too, shows within a moment.
* One that returns and waits for the end of each launch may use little, however much it wants: it
  waits for the time slices of others, which no meter shows. So a container that works steadily
  again gets all it may have for a moment, to show what it uses then. The host's processors may
  have kept it from using that moment, so it gets another after a second, then after two, four, up
  to half a minute.
* One that waited for the end of its launches all the time, or had a long launch on the GPU all the
  time, never had enough.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gpumanager.compute.history import UsageHistory
from gpumanager.compute.values import SECOND, Flight, Reading

MOMENT_NS: Final = SECOND // 5
"""What counts as now: two looks, and less than half of the time idle share may take to be used."""

AGAIN_NS: Final = SECOND
DOUBLED: Final = 5
"""After a moment with all it may have comes another so much later, and twice as late so often."""

PAID_NS: Final = 3 * SECOND
"""How long at most a container is believed to wait for what its last launch has cost it."""

ROOM: Final = 1.1
ROOM_MORE: Final = 0.02
RISE: Final = 1.2
PRESENT: Final = 0.9
"""A part of the time that is nearly all of it, for a launch takes a moment to come."""


@dataclass(slots=True)
class Demand:
    """Of one container on one GPU. moments: that it had since it was idle. next: when it has
    another, if it works steadily."""

    eager_until: int = 0
    want: float = 0.0
    moments: int = 0
    next: int = 0

    def update(self, now: int, reading: Reading, history: UsageHistory) -> float:
        """The share it would use now, its ceiling at most; the reading is in the history."""
        used = history.share(MOMENT_NS)
        if used == 0:
            self.moments, self.next = 0, now
        due = history.steady and now >= self.next
        lacks = used < reading.guarantee and history.awaits(MOMENT_NS) > PRESENT
        present = presence(reading.flights, now) > PRESENT
        if due or lacks or present or self._presses(history):
            paid_until = min(reading.paid_until, now + PAID_NS)
            self.eager_until = max(now + MOMENT_NS, paid_until)
            self.moments += due
            self.next = self.eager_until + (AGAIN_NS << min(max(self.moments - 1, 0), DOUBLED))
        most = max(reading.ceiling, reading.guarantee)
        kept = min(most, ROOM * used + ROOM_MORE) if used > 0 else 0.0
        self.want = most if now < self.eager_until else kept
        return self.want

    def _presses(self, history: UsageHistory) -> bool:
        """Whether more may be wanted than was kept for it."""
        rose = history.newest > RISE * self.want + ROOM_MORE
        return history.waited or rose


def presence(flights: Iterable[Flight], now: int) -> float:
    """The part of the last moment in which a long launch was there, waiting or not."""
    until, there = now - MOMENT_NS, 0
    for flight in sorted(flights, key=lambda one: one.begun):
        ended = flight.ended or now
        there += max(0, ended - max(until, flight.begun))
        until = max(until, ended)
    return there / MOMENT_NS
