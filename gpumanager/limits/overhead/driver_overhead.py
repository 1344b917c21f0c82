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
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from gpumanager.gpu.usage.process_memory import ProcessMemory
from gpumanager.gpu.values import GpuUUID, bare
from gpumanager.ids import AllocationID
from gpumanager.limits.overhead.context_sizes import ASSUMED, ContextSizes
from gpumanager.limits.overhead.process_figure import Beside, FigureContents
from gpumanager.limits.pages.books import Books
from gpumanager.limits.pages.config import Config
from gpumanager.limits.processes import Process
from gpumanager.units import Bytes

log = logging.getLogger(__name__)

LAUNCHED_SECONDS: Final = 5.0
"""After a measurement comes another so much later where there was nothing but launches."""


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
class Listed:
    """A program that the driver has listed. stack: of TakenSlot. successor: exec began it in a
    process that was listed before."""

    pid: int
    stack: int
    successor: bool


class DriverOverhead:
    """Measures the overhead of one allocation.

    sizes: what is learnt of contexts, shared by all allocations. on_size: called when more is
    known. What figures contain is learnt from what the container says it holds, so that it is
    learnt for that one alone.
    """

    def __init__(
        self,
        allocation: AllocationID,
        config: Config,
        books: Books,
        sizes: ContextSizes,
        on_size: Callable[[], None],
    ) -> None:
        self._allocation = allocation
        self._config = config
        self._books = books
        self._sizes = sizes
        self._on_size = on_size
        self._contents = FigureContents()
        self._assumed = False
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
        if not books.enter_measured(slot, mark.activity, figures, self._contents):
            return OverheadOutcome.MOVED
        before = self._last.get(slot)
        program = pid, stack
        if before is not None and before[0] == program:
            self._contents.compare(before[1], beside)
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
        gpus = [limit.gpu for limit in self._config.limits()]
        seen = [(gpus[at], figures[at] or Bytes(0)) for at in fresh if at < len(figures)]
        news = [self._sizes.learn(gpu, size, self._allocation) for gpu, size in seen if size > 0]
        if any(news):
            self._on_size()

    def recall(self, gpu: GpuUUID, size: Bytes) -> None:
        """Learn what an earlier manager has written for this container."""
        if size == ASSUMED:
            self._assumed = True
        elif 0 < size < ASSUMED:
            self._sizes.learn(gpu, size, self._allocation)

    def context_size(self, gpu: GpuUUID) -> Bytes:
        """Return it; 0 while it is not known, and nothing is assumed."""
        known = self._sizes.of(gpu, self._allocation)
        return known or (ASSUMED if self._assumed else Bytes(0))

    def assume(self, pid: int) -> None:
        """Assume that each context takes ASSUMED in this container: the driver lists none of a
        process.

        One that was listed before has ended meanwhile, or become another program by exec: that says
        nothing of the driver.
        """
        if any(listed.pid == pid for listed in self._listed.values()):
            return
        self._complain(pid)
        self._assumed = True
        self._config.write_contexts(self.context_size)

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


class OverheadReading(Protocol):
    """An allocation. exited: processes that have died and stay charged until it is measured."""

    @property
    def launches(self) -> int: ...
    @property
    def exited(self) -> Collection[Process]: ...


@dataclass(frozen=True, slots=True)
class OverheadVersion:
    """Of an allocation's memory. at: seconds, when it was found. activities: of its processes."""

    at: float
    activities: Mapping[Process, int | None]
    launches: int

    def is_stale(self, now: "OverheadVersion") -> bool:
        launched = now.launches != self.launches and now.at - self.at >= LAUNCHED_SECONDS
        return launched or any(
            self.activities.get(process) != activity for process, activity in now.activities.items()
        )


class Staleness:
    """Finds the allocations of which what was measured may be stale."""

    def __init__(self) -> None:
        self._measured: dict[AllocationID, OverheadVersion] = {}

    def stale(
        self,
        now: float,
        served: Mapping[AllocationID, OverheadReading],
        marks: Mapping[AllocationID, Mapping[Process, OverheadMark]],
    ) -> Mapping[AllocationID, OverheadVersion]:
        """Return those to be measured, as they are now. marks: of the processes that can be."""
        self._measured = {name: one for name, one in self._measured.items() if name in served}
        versions = {
            name: OverheadVersion(
                now, {who: mark.activity for who, mark in own.items()}, served[name].launches
            )
            for name, own in marks.items()
            if own
        }
        return {
            name: version
            for name, version in versions.items()
            if name not in self._measured
            or served[name].exited
            or self._measured[name].is_stale(version)
        }

    def measured(self, versions: Mapping[AllocationID, OverheadVersion]) -> None:
        """Keep these: a measurement that began after they were found has ended."""
        self._measured |= versions
