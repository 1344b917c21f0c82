"""The meters of an allocation as readings: what its processes were charged, and how they waited.

Read ten times a second for every container of the node. What a limit says is put into a reader's
terms once, and again when it is changed. Most containers do nothing most of the time: a meter that
has not moved is the reading of before, the same object. Where nobody has launched yet nothing can
be logged, and the page of the logbook is left alone. What it says is believed as far as it can be
(`gpumanager.virtual.pages.meter_counters`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from gpumanager.compute.values import Reading
from gpumanager.gpu.values import GpuUUID, bare
from gpumanager.units import CORES_PER_GPU
from gpumanager.virtual.pages.books import Books
from gpumanager.virtual.pages.launch_log import LaunchLogReader
from gpumanager.virtual.pages.meter_counters import AHEAD_NS, MeterCounters
from gpumanager.virtual.values import AllocationID, Limit
from vcuda_shim._shim import ffi, lib

LIMITER_BURST_US: Final = lib.LIMITER_BURST_US
"""Of a limit that says nothing."""


class People(NamedTuple):
    """The processes of an allocation. pids: as the host calls them. departed: how many of them have
    ended. unpaid: one that is alive has a launch under way of unknown cost.
    """

    pids: frozenset[int] = frozenset()
    departed: int = 0
    unpaid: bool = False


NOBODY: Final = People()

UNUSED: Final = bytes(ffi.sizeof("struct vcuda_meter"))
"""A meter from which nobody has ever been charged, and that has counted no memory either."""

NOTHING: Final = (UNUSED, b"")
"""Seen of it, and of its logbook."""


@dataclass(slots=True)
class _Device:
    holder: tuple[str, int]
    gpu: GpuUUID
    guarantee: float
    ceiling: float
    burst_ns: int
    books: Books
    meter: Any
    """The meter's bytes, as they are at the moment."""
    logbook: LaunchLogReader | None
    """None while the meter is unused."""
    known: dict[int, MeterCounters]
    """Of all devices, by their places."""
    seen: tuple[bytes, bytes] = (b"", b"")
    people: People = NOBODY
    reading: Reading | None = None

    def read(self, people: People, now_ns: int) -> Reading:
        """What is seen comes before what is read: a change in between is seen the next time."""
        seen = self._look()
        known, going = self.reading, self.logbook is not None and self.logbook.going
        if known and seen == self.seen and people == self.people and not going:
            return known
        self.seen, self.people = seen, people
        self.reading = self._read(people, now_ns)
        return self.reading

    def _look(self) -> tuple[bytes, bytes]:
        meter = self.meter[:]
        if self.logbook is None:
            if meter == UNUSED:
                return NOTHING
            self.logbook = LaunchLogReader(self.books, self.holder[1])
        return meter, self.logbook.head[:]

    def _count(self, now_ns: int, words: Any) -> MeterCounters:
        place = self.holder[1]
        long_ns = self.logbook.charged_ns if self.logbook else 0
        known = self.known.get(place)
        if known is None:
            known = self.known[place] = MeterCounters.begin(now_ns, words, long_ns)
        else:
            known.follow(now_ns, words, long_ns)
        return known

    def _read(self, people: People, now_ns: int) -> Reading:
        words, logbook = self.books.words.meters[self.holder[1]], self.logbook
        counted = self._count(now_ns, words)
        return Reading(
            holder=self.holder,
            gpu=self.gpu,
            guarantee=self.guarantee,
            ceiling=self.ceiling,
            pids=people.pids,
            paid_until=min(words.virtual_time, now_ns + AHEAD_NS),
            charged_ns=counted.charged.counter.value,
            retired_ns=counted.retired.counter.value,
            waits=counted.waits.value,
            launches=counted.launches.value,
            unpaid=people.unpaid,
            awaited_ns=counted.awaited.value,
            departed=people.departed,
            flights=logbook.read() if logbook else (),
            long_ns=counted.long.counter.value,
            burst_ns=self.burst_ns,
        )


class Meters:
    """Of the devices that are granted; one that is withdrawn is not read.

    before: those that were read until the limits changed.
    """

    def __init__(
        self,
        allocation: AllocationID,
        limits: Sequence[Limit],
        books: Books,
        before: "Meters | None" = None,
    ) -> None:
        self.counters: dict[int, MeterCounters] = before.counters if before else {}
        self._devices = tuple(
            _device((allocation, place), limit, books, self.counters)
            for place, limit in enumerate(limits)
            if limit.cores > 0
        )

    def read(self, people: People, now_ns: int) -> tuple[Reading, ...]:
        """now_ns: of CLOCK_MONOTONIC; never earlier than the last time."""
        return tuple([device.read(people, now_ns) for device in self._devices])


def _device(
    holder: tuple[AllocationID, int], limit: Limit, books: Books, known: dict[int, MeterCounters]
) -> _Device:
    meter = ffi.buffer(ffi.addressof(books.words.meters[holder[1]]))
    return _Device(
        holder=holder,
        gpu=bare(limit.gpu),
        guarantee=limit.cores / CORES_PER_GPU,
        ceiling=min(limit.ceiling, CORES_PER_GPU) / CORES_PER_GPU,
        burst_ns=(limit.burst_us or LIMITER_BURST_US) * 1000,
        books=books,
        meter=meter,
        logbook=None if meter[:] == UNUSED else LaunchLogReader.from_now_on(books, holder[1]),
        known=known,
    )
