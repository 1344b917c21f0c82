"""What C sorts, ranks and writes of a list of names is what Python would."""

from itertools import accumulate
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vcuda_shim._scheduler import ffi, lib

NODES = 12
MARKS = st.binary(min_size=NODES, max_size=NODES).map(lambda row: bytes(one % 4 for one in row))
NUMBERS = st.lists(st.integers(0, NODES + 3), min_size=1, max_size=60)
POINTS = st.lists(
    st.one_of(st.integers(-3, 12).map(float), st.floats(allow_nan=False)),
    min_size=NODES,
    max_size=NODES,
)


def row(kind: str, values: Any) -> Any:
    """In memory that ends with it."""
    return ffi.new(f"{kind}[]", list(values))


def new_starts(kinds: int) -> Any:
    return ffi.new("uint32_t[]", kinds + 1)


def mark_of(marks: bytes, number: int) -> int:
    return marks[number] if number < len(marks) else 0


@given(MARKS, NUMBERS)
def test_places_are_sorted_by_what_the_row_has_for_their_numbers(
    marks: bytes, numbers: list[int]
) -> None:
    count = len(numbers)
    scratch, places, starts = ffi.new("uint8_t[]", count), row("uint32_t", numbers), new_starts(256)

    given_ = row("uint32_t", numbers), count, row("uint8_t", marks), len(marks)
    lib.rows_sort(*given_, scratch, places, starts)

    for mark in range(256):
        expected = [at for at, number in enumerate(numbers) if mark_of(marks, number) == mark]
        assert list(places[starts[mark] : starts[mark + 1]]) == expected


@given(NUMBERS, st.data(), POINTS)
def test_the_ten_best_are_put_together_by_rank(
    numbers: list[int], data: st.DataObject, points: list[float]
) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(numbers) - 1), unique=True))
    count = len(chosen)
    scratch, ranked = ffi.new("uint8_t[]", count), ffi.new("uint32_t[]", count)
    starts = new_starts(lib.ROWS_BEST)

    where = row("uint32_t", numbers), row("uint32_t", chosen), count
    found = lib.rows_rank(*where, row("double", points), NODES, scratch, ranked, starts)

    known = [place for place in chosen if numbers[place] < NODES]
    best = sorted({points[numbers[place]] for place in known}, reverse=True)[: lib.ROWS_BEST]
    assert found == len(best)
    for rank, one in enumerate(best):
        expected = [place for place in known if points[numbers[place]] == one]
        assert list(ranked[starts[rank] : starts[rank + 1]]) == expected


@given(st.lists(st.text("ab", max_size=9), min_size=1), st.data(), st.integers(0, 300))
def test_chosen_names_are_written_as_far_as_there_is_room(
    names: list[str], data: st.DataObject, room: int
) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(names) - 1)))
    quoted, begins = [f'"{name}"'.encode() for name in names], begins_of(names)
    out, text = ffi.new("char[]", max(1, room)), row("char", map(chr_of, b",".join(quoted)))

    where = text, row("uint32_t", begins), row("uint32_t", chosen), len(chosen)
    size = lib.rows_write(*where, b"{", b":1},", out, room)

    expected = b"".join(b"{" + quoted[place] + b":1}," for place in chosen)
    if len(expected) <= room:
        assert bytes(ffi.buffer(out, size)) == expected
    else:
        assert size == 2**64 - 1


@given(st.lists(st.text("ab", max_size=9), min_size=1), st.data())
def test_a_list_of_chosen_names_has_their_numbers_and_where_each_begins(
    names: list[str], data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(names) - 1)))
    begins = begins_of(names)
    numbers = [100 + place for place in range(len(names))]
    picked, starts = new_starts(len(chosen)), new_starts(len(chosen))

    where = row("uint32_t", numbers), row("uint32_t", begins), row("uint32_t", chosen)
    lib.rows_pick(*where, len(chosen), picked, starts)

    assert list(picked[0 : len(chosen)]) == [numbers[place] for place in chosen]
    assert list(starts[0 : len(chosen) + 1]) == begins_of([names[place] for place in chosen])


def begins_of(names: list[str]) -> list[int]:
    """Where each stands in quotes with a comma behind it, and where the last one ends."""
    return list(accumulate((len(name) + 3 for name in names), initial=0))


def chr_of(byte: int) -> bytes:
    return bytes((byte,))
