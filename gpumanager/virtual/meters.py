"""The meters of an allocation as readings: what its processes were charged, and how they waited.

Read ten times a second for every container of the node. What a limit says is put into a reader's
terms once, and again when it is changed. Most containers do nothing most of the time: a meter that
has not moved is the reading of before, the same object.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from gpumanager.compute.values import Reading
from gpumanager.gpu.values import GpuUUID, bare
from gpumanager.units import CORES_PER_GPU
from gpumanager.virtual.books import Books
from gpumanager.virtual.logbook import Logbook
from gpumanager.virtual.values import AllocationID, Limit
from vcuda_shim._shim import ffi


class People(NamedTuple):
    """The processes of an allocation. pids: as the host calls them. departed: how many of them have
    ended; fled: with a launch under way of unknown cost. unpaid: one that is alive has such one.
    """

    pids: frozenset[int] = frozenset()
    departed: int = 0
    fled: int = 0
    unpaid: bool = False


NOBODY: Final = People()


@dataclass(slots=True)
class _Device:
    holder: tuple[str, int]
    gpu: GpuUUID
    promise: float
    ceiling: float
    words: Any
    logbook: Logbook
    meter: Any
    """The meter's bytes, as they are at the moment."""
    seen: tuple[bytes, bytes] = (b"", b"")
    people: People = NOBODY
    reading: Reading | None = None

    def read(self, people: People) -> Reading:
        """What is seen comes before what is read: a change in between is seen the next time."""
        seen = (self.meter[:], self.logbook.head[:])
        known = self.reading
        if known and seen == self.seen and people == self.people and not self.logbook.going:
            return known
        self.seen, self.people = seen, people
        self.reading = self._read(people)
        return self.reading

    def _read(self, people: People) -> Reading:
        words = self.words
        return Reading(
            holder=self.holder,
            gpu=self.gpu,
            promise=self.promise,
            ceiling=self.ceiling,
            pids=people.pids,
            paid_until=words.virtual_time,
            charged_ns=words.charged_ns,
            retired_ns=words.retired_ns,
            waits=words.throttled + words.throttled_ns,
            launches=words.launches,
            unpaid=people.unpaid,
            departed=people.departed,
            fled=people.fled,
            flights=self.logbook.read(),
            long_ns=self.logbook.charged_ns,
        )


class Meters:
    """Of the devices that are granted; one that is withdrawn is not read."""

    def __init__(self, allocation: AllocationID, limits: Sequence[Limit], books: Books) -> None:
        self._devices = tuple(
            _Device(
                holder=(allocation, place),
                gpu=bare(limit.gpu),
                promise=limit.cores / CORES_PER_GPU,
                ceiling=min(limit.ceiling, CORES_PER_GPU) / CORES_PER_GPU,
                words=books.words.meters[place],
                logbook=Logbook(books, place),
                meter=ffi.buffer(ffi.addressof(books.words.meters[place])),
            )
            for place, limit in enumerate(limits)
            if limit.cores > 0
        )

    def read(self, people: People) -> tuple[Reading, ...]:
        return tuple([device.read(people) for device in self._devices])
