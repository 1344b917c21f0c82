"""Nodes by number, so that what is kept of each stands in a row.

A request names hundreds of nodes, of which a dozen things are then asked: who fits, with how many
points, whether it has changed. Each name is looked up once and becomes a number; all the rest are
places in rows, which lie beside each other in memory where tables of names are scattered over it.
The one table of names lies in C (native/scheduler), which reads them where they were sent.
"""

from collections.abc import Collection
from typing import Final

from gpumanager.scheduler.named import BETWEEN, Names, new_row
from vcuda_shim._scheduler import ffi, lib

NOBODY: Final[int] = lib.NAMES_NOBODY
"""The number of names that are no node's."""
FEWEST: Final = 3
"""Bytes that a name in a list takes at least: its quotes, and what is behind them."""


class Numbers:
    """Gives numbers from 1, those of nodes that are gone once more.

    names: by number. edition: another where a name has another number.
    """

    def __init__(self) -> None:
        self.names: list[str] = [""]
        self.edition = 0
        self._free: list[int] = []
        self._table = ffi.gc(ffi.new("struct names *"), lib.names_clear)

    def of(self, name: str) -> int:
        """NOBODY for who is not known."""
        said = name.encode()
        return int(lib.names_find(self._table, said, len(said)))

    def add(self, name: str) -> int:
        """The number of a node that is there from now on. Raises ValueError."""
        number, said = self._free[-1] if self._free else len(self.names), name.encode()
        if lib.names_add(self._table, said, len(said), number):
            raise ValueError(f"{name[:60]!r} is there already, or is no name")
        if self._free:
            self.names[self._free.pop()] = name
        else:
            self.names.append(name)
        self.edition += 1
        return number

    def remove(self, name: str) -> None:
        """The node is gone; its number may be another's soon. Raises KeyError."""
        said = name.encode()
        number = lib.names_remove(self._table, said, len(said))
        if number == NOBODY:
            raise KeyError(name)
        self._free.append(number)
        self.edition += 1

    def read(self, names: Collection[str]) -> Names:
        """With a number for each; NOBODY for who is not known. Raises ValueError."""
        if isinstance(names, Names):
            current = names.edition == self.edition
            return names if current else self._again(names.said, names.first, len(names))
        text = f'"{BETWEEN.join(names)}"]' if names else ""
        return self._again(text.encode(), 0, len(names))

    def cut(self, said: bytes, first: int, most: int) -> Names | None:
        """The list of names that begins there with a quote, and ends with `]`; None where anything
        else stands there, or more than `most`."""
        size = len(said) - first
        room = min(size // FEWEST, most)
        numbers, begins = new_row(room), new_row(room + 1)
        at = ffi.from_buffer(said) + first
        count = lib.names_read(self._table, at, size, numbers, begins, room)
        return None if count < 0 else Names(said, first, count, numbers, begins, self.edition)

    def _again(self, said: bytes, first: int, count: int) -> Names:
        if not count:
            return Names(b"", 0, 0, ffi.new("uint32_t[1]"), ffi.new("uint32_t[1]", [1]), 0)
        found = self.cut(said, first, count)
        if found is None or len(found) != count:
            raise ValueError("what is no name of a node stands among them")
        return found
