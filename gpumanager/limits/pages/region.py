"""The two regions of an allocation together: what it may use, and what it uses.

A container can write its books. So the manager passes the processes that are its own,
and the name is the directory's: the page could name a process, or an allocation, of somebody else.
"""

from collections.abc import Collection
from pathlib import Path

from gpumanager.ids import AllocationID
from gpumanager.limits.pages.books import Books, moves
from gpumanager.limits.pages.config import Config
from gpumanager.limits.processes import Process
from gpumanager.limits.values import AllocationUsage

SlotRows = Collection[tuple[int, Process, bool]]
"""Slots, their processes, and whether they were adopted."""


class UsageReader:
    """Reads the usage of one allocation; the same object again while nothing has moved."""

    def __init__(self, config: Config, books: Books) -> None:
        self._config = config
        self._books = books
        self._known: AllocationUsage | None = None
        self._seen: tuple[int, int, SlotRows] = (0, 0, ())

    def read(self, rows: SlotRows) -> AllocationUsage:
        """Return the usage now. rows: the processes that have slots."""
        seen = (self._config.words.generation, moves([self._books.words]), rows)
        if self._known is None or seen != self._seen:
            self._known, self._seen = usage(self._config, self._books, rows), seen
        return self._known


def usage(config: Config, books: Books, rows: SlotRows) -> AllocationUsage:
    """Return what both contain now; words are read one by one, under running processes."""
    limits = config.limits()
    return AllocationUsage(
        allocation=AllocationID(config.directory.name),
        generation=config.words.generation,
        devices=tuple(books.device(device, limit) for device, limit in enumerate(limits)),
        processes=tuple(
            books.process(slot, owner, len(limits), adopted=adopted)
            for slot, owner, adopted in rows
        ),
    )


def read_usage(directory: Path) -> AllocationUsage:
    """Return the usage of an allocation by its directory, with or without a manager. Limits and
    processes are what the pages say: for tests and for what is simulated.

    Raises RegionUnreadable and RegionBroken.
    """
    with Config(directory, writable=False) as config, Books.existing(directory) as books:
        owners = [(slot, owner, True) for slot, owner in books.owners() if owner is not None]
        return usage(config, books, owners)
