"""The long launches of an allocation on one GPU, as its processes log them.

An entry is read until it has ended, and then kept: most looks read one word.
"""

from typing import Any, Final

from gpumanager.compute.values import SECOND, Flight
from gpumanager.virtual.pages.books import Books
from vcuda_shim._shim import ffi, lib

ENTRIES: Final[int] = lib.VCUDA_LOGGED
LONGEST_NS: Final = 600 * SECOND
"""No launch that is believed takes longer, or costs more."""
HEAD: Final[int] = ffi.offsetof("struct vcuda_logbook", "of")


class LaunchLogReader:
    """read: the last ticket that is nobody's news any more."""

    def __init__(self, books: Books, place: int, read: int = 0) -> None:
        self._words = books.words.logbooks[place]
        self.head: Any = ffi.buffer(ffi.addressof(self._words), HEAD)
        """The bytes that differ once something was logged."""
        self._slots = books.words.slots
        self._last = read
        self._open: list[int] = []
        self._ended: list[Flight] = []  # a deque is 64 places from the start
        self._flights: tuple[Flight, ...] = ()

    @classmethod
    def from_now_on(cls, books: Books, place: int) -> "LaunchLogReader":
        return cls(books, place, books.words.logbooks[place].last)

    @property
    def going(self) -> bool:
        """Whether a launch was under way when it was last read."""
        return bool(self._open)

    @property
    def charged_ns(self) -> int:
        """For all launches that were ever logged."""
        charged: int = self._words.charged_ns
        return charged

    def read(self) -> tuple[Flight, ...]:
        """The last that have ended, and all that have not; the same tuple while nothing is new."""
        last: int = self._words.last
        if last <= self._last and not self._open:
            return self._flights
        tickets = [*self._open, *range(max(self._last, last - ENTRIES) + 1, last + 1)]
        self._last = max(self._last, last)  # one that moves back and forth is read once
        found = [flight for ticket in tickets if (flight := self._flight(ticket)) is not None]
        going = [flight for flight in found if not flight.ended]
        self._open = [flight.ticket for flight in going[-ENTRIES:]]
        self._ended += [flight for flight in found if flight.ended]
        del self._ended[:-ENTRIES]
        self._flights = (*self._ended, *going)
        return self._flights

    def _flight(self, ticket: int) -> Flight | None:
        """None if its place was taken by another, or its process ended before it did."""
        words: Any = self._words.of[ticket % ENTRIES]
        ended: int = words.ended  # first: what it belongs to was written before
        flight = Flight(
            ticket,
            words.slot % len(self._slots),
            words.begun,
            ended,
            min(words.cost_ns, LONGEST_NS),
            min(words.charged_ns, LONGEST_NS),
        )
        if words.ticket != ticket or not (flight.ended or self._slots[flight.slot].pid):
            return None
        return flight
