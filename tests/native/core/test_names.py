"""The scheduler's table of names agrees with a dict through any history, and with a parser."""

import errno
import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from vcuda_shim._scheduler import ffi, lib

ANY = st.binary(min_size=1, max_size=30)
PLAIN = st.text("ab-.09", min_size=1, max_size=24).map(str.encode)
NAME = re.compile(rb"[a-z0-9.-]+")
LIST = re.compile(rb'"[a-z0-9.-]*"(?:,"[a-z0-9.-]*")*(?=\])')
MOST = 64


def read(table: Any, said: bytes, capacity: int = MOST) -> tuple[list[int], list[bytes]] | None:
    """Numbers and names as the table has them, from memory that ends with the text."""
    text = ffi.new("char[]", max(1, len(said)))
    ffi.memmove(text, said, len(said))
    numbers, begins = ffi.new("uint32_t[]", capacity), ffi.new("uint32_t[]", capacity + 1)
    count = lib.names_read(table, text, len(said), numbers, begins, capacity)
    if count < 0:
        assert count == -errno.EINVAL
        return None
    assert 1 <= count <= capacity
    names = [said[first : last - 1] for first, last in pairwise(begins[0 : count + 1])]
    assert said[: begins[count]] == b",".join(names) + b"]"
    return list(numbers[0:count]), [name[1:-1] for name in names]


def listed(names: list[bytes]) -> bytes:
    return b'"' + b'","'.join(names) + b'"]'


class Table(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table: Any = ffi.new("struct names *")
        self.model: dict[bytes, int] = {}

    def teardown(self) -> None:
        lib.names_clear(self.table)

    @rule(name=st.one_of(PLAIN, ANY), number=st.integers(1, 600))
    def add(self, name: bytes, number: int) -> None:
        taken = name in self.model or number in self.model.values()
        assert lib.names_add(self.table, name, len(name), number) == (-errno.EEXIST if taken else 0)
        if not taken:
            self.model[name] = number

    @rule(first=st.integers(601, 2000), count=st.integers(1, 300))
    def add_many(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            self.add(b"node-%d" % number, number)

    @rule(every=st.integers(1, 3))
    def remove_many(self, every: int) -> None:
        for name in list(self.model)[::every]:
            assert lib.names_remove(self.table, name, len(name)) == self.model.pop(name)

    @rule(name=st.one_of(PLAIN, ANY))
    def remove(self, name: bytes) -> None:
        number = lib.names_remove(self.table, name, len(name))
        assert number == self.model.pop(name, lib.NAMES_NOBODY)

    @rule(names=st.lists(PLAIN, min_size=1, max_size=MOST), data=st.data())
    def read(self, names: list[bytes], data: st.DataObject) -> None:
        known = sorted(filter(NAME.fullmatch, self.model))
        if known:
            names = names[: MOST // 2] + data.draw(st.lists(st.sampled_from(known), max_size=32))
        found = read(self.table, listed(names))
        assert found == ([self.model.get(name, lib.NAMES_NOBODY) for name in names], names)

    @invariant()
    def each_is_found_and_has_what_it_was_given(self) -> None:
        assert self.table.count == len(self.model)
        for name, number in self.model.items():
            assert lib.names_find(self.table, name, len(name)) == number
        assert lib.names_find(self.table, b"nobody", 6) == self.model.get(b"nobody", 0)


TestTable = Table.TestCase


@given(
    st.lists(st.sampled_from([b'"', b'","', b"]", b"a", b"node-12345", b",", b"A", b"\x80", b" "]))
)
def test_what_is_read_is_what_a_list_of_plain_names_is(pieces: list[bytes]) -> None:
    table: Any = ffi.new("struct names *")
    assert lib.names_add(table, b"node-12345", 10, 7) == 0
    said = b"".join(pieces)

    found = read(table, said)

    expected = LIST.match(said)
    assert (found is None) == (expected is None)
    if found and expected:
        names = [name.encode() for name in json.loads(b"[" + expected[0] + b"]")]
        assert found == ([7 if name == b"node-12345" else 0 for name in names], names)
    lib.names_clear(table)


@pytest.mark.parametrize("at", range(20))
@pytest.mark.parametrize("byte", [b'"', b"\\", b"\0", b"\xa2", b"{", b"/", b"A", b"_"])
def test_one_byte_that_no_name_has_is_found_wherever_it_stands(at: int, byte: bytes) -> None:
    table: Any = ffi.new("struct names *")
    name = b"x" * at + byte + b"y" * (20 - at)

    assert read(table, listed([b"a", name, b"b"])) is None
    assert read(table, listed([b"a", name.replace(byte, b"z"), b"b"])) is not None


def test_a_list_is_read_up_to_as_many_as_there_is_room_for() -> None:
    table: Any = ffi.new("struct names *")

    assert read(table, listed([b"a"] * MOST)) is not None
    assert read(table, listed([b"a"] * (MOST + 1))) is None
    assert read(table, listed([b"a"]), 0) is None


@pytest.mark.parametrize(("size", "number"), [(0, 1), (5000, 1), (1, 0), (1, 2**20 + 1)])
def test_what_is_no_name_and_no_number_is_not_taken(size: int, number: int) -> None:
    table: Any = ffi.new("struct names *")

    assert lib.names_add(table, b"x" * max(1, size), size, number) == -errno.EINVAL
    assert table.count == 0
    assert lib.names_find(table, b"x", min(size, 1)) == lib.NAMES_NOBODY
