"""Lists of node names where somebody sent them, and what is answered about them.

A request names up to all nodes of a cluster. Each name is looked up once and is a number from then
on; marks are looked up by number, counted, and the names that have one are copied into the answer
from where they lie in the request. Looking up, gathering and copying are done in C
(native/scheduler); what a mark means is its owner's affair. A name becomes a string for who wants
to show it.
"""

from array import array
from collections.abc import Collection, Iterator
from typing import Any, Final

from vcuda_shim._scheduler import ffi, lib

BETWEEN: Final = '","'
MARKS: Final = 256
uncleared: Final = ffi.new_allocator(should_clear_after_alloc=False)


def places(row: bytearray, mark: int) -> Iterator[int]:
    """Where this mark stands; those behind the last one may be changed meanwhile."""
    place = row.find(mark)
    while place >= 0:
        yield place
        place = row.find(mark, place + 1)


class Names(Collection[str]):
    """Names as somebody sent them; none has anything to escape.

    said: where the list stands, from `first` on. numbers: of each name, good for `edition` of the
    numbers; starts: where it begins. Both are rows of C, as lib.names_read has them.
    """

    __slots__ = ("_count", "at", "edition", "first", "numbers", "said", "starts")

    def __init__(  # noqa: PLR0917
        self, said: bytes, first: int, count: int, numbers: Any, starts: Any, edition: int
    ) -> None:
        self.said = said
        self.at = ffi.from_buffer(said) + first
        self.numbers = numbers
        self.starts = starts
        self.edition = edition
        self.first = first
        self._count = count

    @property
    def end(self) -> int:
        """Where the list is over, in what was said."""
        return int(self.first + self.starts[self._count] - 1)

    @property
    def text(self) -> memoryview:
        """`"a","b","c"`."""
        return memoryview(self.said)[self.first : self.end]

    def name(self, place: int) -> str:
        first, last = self.starts[place] + 1, self.starts[place + 1] - 2
        return self.said[self.first + first : self.first + last].decode()

    def gather(self, row: bytearray) -> "Marks":
        """What a row has for each, by number."""
        marks, counts = bytearray(self._count), uncleared("uint32_t[]", MARKS)
        given, out = ffi.from_buffer("uint8_t[]", row), ffi.from_buffer("uint8_t[]", marks)
        lib.rows_gather(self.numbers, self._count, given, len(row), out, counts)
        return Marks(self, marks, counts)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return iter(str(self.text, "ascii")[1:-1].split(BETWEEN) if self._count else ())

    def __contains__(self, name: object) -> bool:
        return name in tuple(self)


class Marks:
    """One byte for each name of a list. counts: how many have each."""

    __slots__ = ("_marks", "counts", "names")

    def __init__(self, names: Names, marks: bytearray, counts: Any) -> None:
        self.names = names
        self.counts = counts
        self._marks = marks

    def places(self, mark: int) -> Iterator[int]:
        """Of those that have this mark."""
        return places(self._marks, mark)

    def chosen(self, mark: int) -> "Chosen":
        """Those that have this mark."""
        return Chosen(self, mark)

    def ranked(self, mark: int, points: "array[float]") -> "list[Chosen]":
        """Of those that have this mark the ten best, by a row by number: equal points together."""
        count, counts = len(self.names), uncleared("uint32_t[]", lib.ROWS_BEST + 1)
        ranks = bytearray(count)
        given, out = ffi.from_buffer("uint8_t[]", self._marks), ffi.from_buffer("uint8_t[]", ranks)
        rows = ffi.from_buffer("double[]", points), len(points)
        found = lib.rows_rank(self.names.numbers, count, given, mark, *rows, out, counts)
        ranked = Marks(self.names, ranks, counts)
        return [ranked.chosen(rank) for rank in range(1, found + 1)]

    def written(self, mark: int, before: bytes, after: bytes) -> memoryview:
        """Each of those that have this mark, in quotes, between the two."""
        names = self.names
        room = self.counts[mark] * (len(before) + len(after)) + len(names.text)
        out, marks = uncleared("char[]", room), ffi.from_buffer("uint8_t[]", self._marks)
        where = names.at, names.starts, len(names)
        size = lib.rows_write(*where, marks, mark, before, after, out, room)
        return memoryview(ffi.buffer(out, size))


class Chosen(Collection[str]):
    """The names of a list that have one mark."""

    __slots__ = ("_mark", "_marks")

    def __init__(self, marks: Marks, mark: int) -> None:
        self._marks = marks
        self._mark = mark

    def written(self, before: bytes, after: bytes) -> memoryview:
        """Each of them, in quotes, between the two."""
        return self._marks.written(self._mark, before, after)

    def __len__(self) -> int:
        return int(self._marks.counts[self._mark])

    def __iter__(self) -> Iterator[str]:
        return map(self._marks.names.name, self._marks.places(self._mark))

    def __contains__(self, name: object) -> bool:
        return name in tuple(self)
