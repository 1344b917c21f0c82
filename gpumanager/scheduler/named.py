"""Lists of node names where somebody sent them, and what is answered about them.

A request names up to all nodes of a cluster. Each name is looked up once and is a number from then
on. A row has a mark for each number; the list's places are sorted by mark, and the names of a mark
are copied into the answer from where they lie in the request. Looking up, sorting and copying are
done in C (native/scheduler); what a mark means is its owner's affair. A name becomes a string for
who wants to show it.
"""

from array import array
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Any, Final

from vcuda_shim._scheduler import ffi, lib

BETWEEN: Final = '","'
_uncleared: Final = ffi.new_allocator(should_clear_after_alloc=False)
_ROW, _BYTES, _TEXT = map(ffi.typeof, ("uint32_t[]", "uint8_t[]", "char[]"))
_POINTS: Final = ffi.typeof("double[]")


def new_row(size: int) -> Any:
    """Of C, for numbers or places; nothing is in it yet."""
    return _uncleared(_ROW, size)


class Names(Collection[str]):
    """Names as somebody sent them; none has anything to escape.

    said: where the list stands, from `first` on. numbers: of each name, good for `edition` of the
    numbers; begins: where it stands. Both are rows of C, as lib.names_read has them.
    """

    __slots__ = ("_count", "at", "begins", "edition", "first", "numbers", "said")

    def __init__(  # noqa: PLR0917
        self, said: bytes, first: int, count: int, numbers: Any, begins: Any, edition: int
    ) -> None:
        self.said = said
        self.first = first
        self.at = ffi.from_buffer(said) + first
        self.numbers = numbers
        self.begins = begins
        self.edition = edition
        self._count = count

    @property
    def end(self) -> int:
        """Where the list is over, in what was said."""
        return int(self.first + self.begins[self._count] - 1)

    @property
    def whole(self) -> bytes:
        """`"a","b","c"]`."""
        return self.said[self.first : self.end + 1]

    def again(self, said: bytes, first: int) -> "Names":
        """The same list, where it stands once more."""
        return Names(said, first, self._count, self.numbers, self.begins, self.edition)

    @property
    def text(self) -> memoryview:
        """`"a","b","c"`."""
        return memoryview(self.said)[self.first : self.end]

    def name(self, place: int) -> str:
        begin, end = self.begins[place] + 1, self.begins[place + 1] - 2
        return self.said[self.first + begin : self.first + end].decode()

    def sort(self, row: bytearray) -> "Marks":
        """By the mark that a row, by number, has for each."""
        count = self._count
        places, starts = new_row(count), new_row(lib.ROWS_MARKS + 1)
        given = ffi.from_buffer(_BYTES, row), len(row)
        lib.rows_sort(self.numbers, count, *given, _uncleared(_BYTES, count), places, starts)
        return Marks(self, places, starts)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return iter(str(self.text, "utf-8")[1:-1].split(BETWEEN) if self._count else ())

    def __contains__(self, name: object) -> bool:
        return name in tuple(self)


class Chosen(Collection[str]):
    """Some names of a list. places: a row of C, of which those from `first` to `end` count."""

    __slots__ = ("_end", "_first", "_names", "_places")

    def __init__(self, names: Names, places: Any, first: int, end: int) -> None:
        self._names = names
        self._places = places
        self._first = first
        self._end = end

    @property
    def numbers(self) -> list[int]:
        numbers = self._names.numbers
        return [numbers[place] for place in self._places[self._first : self._end]]

    def ranked(self, points: "array[float]") -> "list[Chosen]":
        """The ten best by a row of points by number, equal ones together."""
        count = len(self)
        ranked, starts = new_row(count), new_row(lib.ROWS_BEST + 1)
        where = self._names.numbers, self._places + self._first, count
        given = ffi.from_buffer(_POINTS, points), len(points)
        found = lib.rows_rank(*where, *given, _uncleared(_BYTES, count), ranked, starts)
        ends = starts[0 : found + 1]
        return [Chosen(self._names, ranked, first, end) for first, end in pairwise(ends)]

    def written(self, before: bytes, after: bytes) -> memoryview:
        """Each in quotes, between the two."""
        names, count = self._names, len(self)
        room = count * (len(before) + len(after)) + len(names.text)
        out, places = _uncleared(_TEXT, room), self._places + self._first
        size = lib.rows_write(names.at, names.begins, places, count, before, after, out, room)
        return memoryview(ffi.buffer(out, size))

    def listed(self) -> Names:
        """By themselves; there is at least one."""
        names, count = self._names, len(self)
        numbers, begins = new_row(count), new_row(count + 1)
        where = names.numbers, names.begins, self._places + self._first, count
        lib.rows_pick(*where, numbers, begins)
        said = b"".join((self.written(b"", b",")[:-1], b"]"))
        return Names(said, 0, count, numbers, begins, names.edition)

    def __len__(self) -> int:
        return self._end - self._first

    def __iter__(self) -> Iterator[str]:
        """The first costs little; for the others the whole list is split."""
        if self:
            yield self._names.name(self._places[self._first])
        if len(self) > 1:
            every = tuple(self._names)
            yield from map(every.__getitem__, self._places[self._first + 1 : self._end])

    def __contains__(self, name: object) -> bool:
        return name in tuple(self)


class Marks:
    """The names of a list by their marks. places, starts: rows of C, as lib.rows_sort has them."""

    __slots__ = ("_names", "_places", "_starts")

    def __init__(self, names: Names, places: Any, starts: Any) -> None:
        self._names = names
        self._places = places
        self._starts = starts

    def __getitem__(self, mark: int) -> Chosen:
        """Those that have it."""
        return Chosen(self._names, self._places, self._starts[mark], self._starts[mark + 1])
