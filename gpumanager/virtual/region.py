"""The two regions of an allocation together: what it may use, and what it uses."""

from pathlib import Path
from typing import Any

from gpumanager.virtual.books import Books
from gpumanager.virtual.config import MAX_DEVICES, Config
from gpumanager.virtual.usage import AllocationUsage
from gpumanager.virtual.values import AllocationID
from vcuda_shim._shim import ffi


class UsageReader:
    """Of one allocation: while nobody is there to change anything, the same object again."""

    def __init__(self, config: Config, books: Books) -> None:
        self._config = config
        self._books = books
        self._known: AllocationUsage | None = None
        self._seen: tuple[int, bytes] = (0, b"")

    def read(self, *, seated: bool) -> AllocationUsage:
        """seated: whether a process of it is known."""
        words = self._config.words
        seen = (words.generation, self._books.meters_seen(min(words.device_count, MAX_DEVICES)))
        if not seated and self._known is not None and seen == self._seen:
            return self._known
        found = usage(self._config, self._books)
        self._known, self._seen = None if seated else found, seen
        return found


def usage(config: Config, books: Books) -> AllocationUsage:
    """What the two say at this moment; words are read one by one, under running processes."""
    limits = config.limits()
    return AllocationUsage(
        allocation=AllocationID(_name(config)),
        generation=config.words.generation,
        devices=tuple(books.device(device, limit) for device, limit in enumerate(limits)),
        processes=tuple(
            books.process(slot, owner, len(limits)) for slot, owner in books.owners() if owner
        ),
    )


def read_usage(directory: Path) -> AllocationUsage:
    """The usage of an allocation by its directory, with or without a manager.

    Raises RegionUnreadable and RegionBroken.
    """
    with (
        Config(directory, writable=False) as config,
        Books.existing(directory) as books,
    ):
        return usage(config, books)


def _name(config: Config) -> str:
    words: Any = ffi.string(config.words.allocation)
    return bytes(words).decode(errors="replace")
