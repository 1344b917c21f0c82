"""Enters what the driver holds for the processes of one allocation into its books.

A figure counts only if no memory moved between its process's last word and ours: a request that is
reserved but not yet given would make the driver's own share look smaller than it is. A process that
the driver listed before and does not list any more holds nothing, unless its books say otherwise.
Then, and where the driver does not tell or never listed it, which may know it by another number, it
cannot be measured, and what was known stands.

What the driver takes by itself changes with calls that move memory, which processes count
(`activity`), with launches, since local memory grows when a kernel needs more of it, and with the
death of a process that shared memory. Where nothing of this has happened since the last
measurement, another one would find the same, so NVML is not asked. Launches alone are no haste:
most of them change nothing.

What one context takes is the smallest figure of a first one in this container, since a container
can lie about what else it holds. The first may be over a limit that is smaller than itself, and is
undone; at that moment its container cannot hold anything else. Where the driver does not list a
process that asks, nothing will be learnt: then a size is assumed.

What NVML's figure of a process contains is learnt as well, since drivers differ and none tells it.
Real drivers leave managed memory out (their kernel modules skip memory of clients in the kernel,
and the client for managed memory is one); the ideal simulated driver includes it. Memory of another
process that this one has opened may be in the figures of both. So processes write into their books
how much of either they have. Two measurements of one process, between which that amount changed,
give the answer: the figure changed by as much, or it stayed. Code that comes or goes in between may
feign either: 20 MiB more of managed memory beside a module of 20 MiB less leave the figure as it
was. So an answer is believed when it was seen twice, one after the other. Until then what the
driver had before is taken to be what it has (own_bytes() in native/shim/core/region.c).
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from gpumanager.gpu.usage.process_memory import ProcessMemory
from gpumanager.gpu.values import bare
from gpumanager.limits.pages.books import Books
from gpumanager.limits.pages.config import Config
from gpumanager.limits.processes import Process
from gpumanager.units import MIB, Bytes

log = logging.getLogger(__name__)

ASSUMED: Final = Bytes(512 * MIB)
"""What a context takes if nobody can say: about as much as on the largest GPUs."""

LAUNCHED_SECONDS: Final = 5.0
"""After a measurement comes another so much later where there was nothing but launches."""

_TELLING: Final = 4 * MIB
"""A smaller change may be anything."""
_PART: Final = 8
"""Changes are alike that differ by less than such a part of them."""
_VOTES: Final = 2
"""An answer is believed when it was seen as often, one after another."""


class OverheadOutcome(Enum):
    ENTERED = auto()
    MOVED = auto()
    """Memory moved meanwhile: measure again."""
    UNLISTED = auto()
    """The driver does not know the process, or not what it holds."""


@dataclass(frozen=True, slots=True)
class OverheadMark:
    """The state of a process before a measurement."""

    activity: int | None
    """None while memory moves."""
    fresh: tuple[int, ...]
    """The devices of which it holds nothing yet by its books: what is found there is a context."""
    estimates: tuple[int, ...] = ()
    """Of each device, in bytes: what it says that the driver took, and nobody has measured."""


@dataclass(frozen=True, slots=True)
class OverheadSnapshot:
    """An allocation before a measurement. at: seconds. marks: of its processes that can be measured
    now. exited: processes that have died, and stay charged until all others are measured."""

    at: float
    marks: Mapping[Process, OverheadMark]
    exited: tuple[Process, ...]
    launches: int

    def has_news(self, measured: "OverheadSnapshot | None") -> bool:
        """Return whether it may differ from what was measured then."""
        if measured is None or not self.marks or self.exited:
            return bool(self.marks)
        if self.launches != measured.launches and self.at - measured.at >= LAUNCHED_SECONDS:
            return True
        before = {process: mark.activity for process, mark in measured.marks.items()}
        return any(before.get(process) != mark.activity for process, mark in self.marks.items())


@dataclass(frozen=True, slots=True)
class Listed:
    """A program that the driver has listed. stack: of TakenSlot. successor: exec began it in a
    process that was listed before."""

    pid: int
    stack: int
    successor: bool


@dataclass(frozen=True, slots=True)
class Beside:
    """One process on one device at one moment. figure: what the driver says, less the plain memory
    that is charged."""

    figure: int
    managed: int
    imported: int


@dataclass(slots=True)
class Contained:
    """Learns whether some memory is in the figure. known: None until then."""

    known: bool | None = None
    _last: bool | None = None
    _votes: int = 0
    """How often the last answer was seen, one after another."""

    def observe(self, change: int, figure_change: int) -> None:
        """Compare by how much the memory and the figure have changed."""
        near = abs(change) // _PART
        if abs(change) < _TELLING:
            return
        if abs(figure_change) <= near:
            self._vote(contained=False)
        elif abs(figure_change - change) <= near:
            self._vote(contained=True)

    def _vote(self, *, contained: bool) -> None:
        self._votes = self._votes + 1 if contained is self._last else 1
        self._last = contained
        if self._votes >= _VOTES:
            self.known = contained


def compare(
    contained: tuple[Contained, Contained], before: Mapping[int, Beside], now: Mapping[int, Beside]
) -> None:
    """Compare two measurements of one process, by device. A change of both shows nothing.

    contained: whether managed memory is in the figures, and imported memory.
    """
    managed, imported = contained
    for device in before.keys() & now.keys():
        old, new = before[device], now[device]
        figure = new.figure - old.figure
        if old.imported == new.imported:
            managed.observe(new.managed - old.managed, figure)
        elif old.managed == new.managed:
            imported.observe(new.imported - old.imported, figure)


class DriverOverhead:
    """Measures the overhead of one allocation. What it learns comes from what the container says it
    holds, so that it is learnt for that one alone."""

    def __init__(self, config: Config, books: Books) -> None:
        self._config = config
        self._books = books
        self._contained = (Contained(), Contained())
        self._unlisted = False
        self._listed: dict[int, Listed] = {}
        """By slot."""
        self._last: dict[int, tuple[tuple[int, int], dict[int, Beside]]] = {}
        """Slot → the pid and stack of its program, and by device what was found last."""

    def mark(self, slot: int) -> OverheadMark:
        """Return what to keep of a slot before a measurement."""
        books, count = self._books, len(self._config.limits())
        activity = books.activity(slot)  # first: of an estimate that comes later it will differ
        fresh = (at for at in range(count) if not books.used(at, slot) + books.overhead(at, slot))
        estimates = (books.estimate(at, slot) for at in range(count))
        return OverheadMark(activity, tuple(fresh), tuple(estimates))

    def enter(
        self, slot: int, pid: int, stack: int, mark: OverheadMark, held: ProcessMemory
    ) -> OverheadOutcome:
        """Enter a measurement that began after `mark` was taken. stack: of TakenSlot."""
        if mark.activity is None:
            return OverheadOutcome.MOVED
        books = self._books
        listed = [held.get(bare(limit.gpu)) for limit in self._config.limits()]
        if any(by_pid is not None and by_pid.get(pid) is not None for by_pid in listed):
            known = [one for one in self._listed.values() if one.pid == pid]
            successor = any(one.successor or one.stack != stack for one in known)
            self._listed[slot] = Listed(pid, stack, successor)
        figures = [self._figure(slot, pid, at, by_pid) for at, by_pid in enumerate(listed)]
        beside = {}  # holds only if no memory moved until the figures are entered
        for device, figure in enumerate(figures):
            if figure is not None:
                managed = books.managed(device, slot, len(figures))
                own = figure - (books.used(device, slot) - managed)
                beside[device] = Beside(own, managed, books.imported(device, slot, len(figures)))
        contained = [one.known for one in self._contained]
        if not books.enter_measured(slot, mark.activity, figures, contained):
            return OverheadOutcome.MOVED
        before = self._last.get(slot)
        program = pid, stack
        if before is not None and before[0] == program:
            compare(self._contained, before[1], beside)
        self._last[slot] = program, beside
        if slot in self._listed and not self._listed[slot].successor:
            self._learn(mark.fresh, figures)
        # Whether it holds anything that the driver does not list, as far as its books have it.
        if any(
            books.used(at, slot) or books.overhead(at, slot) or books.estimate(at, slot)
            for at, figure in enumerate(figures)
            if figure is None
        ):
            self._complain(pid)
            return OverheadOutcome.UNLISTED
        if not self._was_listed(slot, pid):
            return OverheadOutcome.UNLISTED
        self._books.enter_sample(slot)
        return OverheadOutcome.ENTERED

    def drop_estimate(self, slot: int, mark: OverheadMark) -> None:
        """Drop a slot's estimates once all of its container were entered, measured after `mark`.

        Example: a process lets go of 1 GiB that it had exported, while nobody measures, and sleeps.
        The charge stays with it until whoever imported it is measured; then nobody else drops it.
        """
        if mark.activity is not None:
            for device, estimate in enumerate(mark.estimates):
                self._books.drop_estimate(device, slot, mark.activity, estimate)

    def _learn(self, fresh: tuple[int, ...], figures: Sequence[Bytes | None]) -> None:
        """Learn from first contexts, whoever measures them: there is no second chance. The driver's
        own figure is taken: what the books make of it is the container's to change.

        Not of a program that exec has begun: what the one before it had may be in the figure.
        """
        for device in fresh:
            size = figures[device] if device < len(figures) else None
            known = self._config.context(device)
            if size and (known in (0, ASSUMED) or size < known):
                self._config.write_context(device, size)

    def assume(self, pid: int) -> None:
        """Assume that each context takes ASSUMED in this container: the driver lists none of a
        process.

        One that was listed before has ended meanwhile, or become another program by exec: that says
        nothing of the driver.
        """
        if any(listed.pid == pid for listed in self._listed.values()):
            return
        self._complain(pid)
        for device in range(len(self._config.limits())):
            if not self._config.context(device):
                self._config.write_context(device, ASSUMED)

    def _was_listed(self, slot: int, pid: int) -> bool:
        """Return whether the driver listed it, to us or to a manager before us."""
        devices = range(len(self._config.limits()))
        listed = self._listed.get(slot)
        return (listed is not None and listed.pid == pid) or any(
            self._books.overhead(device, slot) for device in devices
        )

    def _figure(
        self, slot: int, pid: int, device: int, listed: Mapping[int, Bytes | None] | None
    ) -> Bytes | None:
        """Return what the process holds on a device; None if that is not known."""
        if listed is None:
            return None
        if pid in listed:
            return listed[pid]
        books = self._books
        claims = books.used(device, slot) > 0 or books.estimate(device, slot) > 0
        return None if claims or not self._was_listed(slot, pid) else Bytes(0)

    def _complain(self, pid: int) -> None:
        if not self._unlisted:
            log.warning(
                "%s: the driver does not report the memory of process %d: its contexts and modules "
                "are charged by estimate",
                self._config.path,
                pid,
            )
        self._unlisted = True


def plain(held: ProcessMemory) -> ProcessMemory:
    """Return figures by bare UUIDs."""
    return {bare(gpu): by_pid for gpu, by_pid in held.items()}
