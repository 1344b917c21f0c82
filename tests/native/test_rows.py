"""What C gathers, ranks and writes of a list of names is what Python would."""

from array import array
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


def mark_of(marks: bytes, number: int) -> int:
    return marks[number] if number < len(marks) else 0


@given(MARKS, NUMBERS)
def test_each_name_has_what_the_row_has_for_its_number(marks: bytes, numbers: list[int]) -> None:
    out, counts = ffi.new("uint8_t[]", len(numbers)), ffi.new("uint32_t[256]")

    given_ = row("uint32_t", numbers), len(numbers), row("uint8_t", marks), len(marks)
    lib.rows_gather(*given_, out, counts)

    expected = [mark_of(marks, number) for number in numbers]
    assert list(out) == expected
    assert list(counts) == [expected.count(mark) for mark in range(256)]


@given(MARKS, NUMBERS, POINTS)
def test_the_ten_best_of_those_with_the_mark_are_ranked(
    marks: bytes, numbers: list[int], points: list[float]
) -> None:
    own = [mark_of(marks, number) for number in numbers]
    out, counts = ffi.new("uint8_t[]", len(numbers)), ffi.new("uint32_t[]", lib.ROWS_BEST + 1)

    where = row("uint32_t", numbers), len(numbers), row("uint8_t", own), 2
    found = lib.rows_rank(*where, row("double", points), len(points), out, counts)

    wanted = [n for n, mark in zip(numbers, own, strict=True) if mark == 2 and n < NODES]
    best = sorted({points[number] for number in wanted}, reverse=True)[: lib.ROWS_BEST]
    ranks = [
        best.index(points[n]) + 1 if mark == 2 and n < NODES and points[n] in best else 0
        for n, mark in zip(numbers, own, strict=True)
    ]
    assert found == len(best)
    assert list(out) == ranks
    assert list(counts) == [ranks.count(rank) for rank in range(lib.ROWS_BEST + 1)]


@given(st.lists(st.tuples(st.text("ab", max_size=9), st.integers(0, 2))), st.integers(0, 300))
def test_names_with_the_mark_are_written_as_far_as_there_is_room(
    marked: list[tuple[str, int]], room: int
) -> None:
    names, before, after = [f'"{name}"'.encode() for name, _ in marked], b"{", b":1},"
    starts = array("I", [0])
    for name in names:
        starts.append(starts[-1] + len(name) + 1)
    out = ffi.new("char[]", max(1, room))

    text, marks = row("char", [bytes((c,)) for c in b",".join(names)]), [m for _, m in marked]
    where = text, row("uint32_t", starts), len(names), row("uint8_t", marks), 1
    size = lib.rows_write(*where, before, after, out, room)

    chosen = [name for name, mark in zip(names, marks, strict=True) if mark == 1]
    expected = b"".join(before + name + after for name in chosen)
    if len(expected) <= room:
        assert bytes(ffi.buffer(out, size)) == expected
    else:
        assert size == 2**64 - 1
