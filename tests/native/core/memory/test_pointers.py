"""Charged addresses: the table agrees with a dict through any history."""

import errno
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from vcuda_shim._shim import ffi, lib

ADDRESSES = st.integers(1, 400).map(lambda step: 0x7F0000000000 + step * 512)


class Pointers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table: Any = ffi.new("struct pointers *")
        self.model: dict[int, tuple[int, int]] = {}

    @rule(address=ADDRESSES, size=st.integers(0, 2**64 - 1), device=st.integers(0, 15))
    def add(self, address: int, size: int, device: int) -> None:
        assert lib.pointers_add(self.table, (address, size, device)) == 0
        self.model[address] = (size, device)

    @rule(address=ADDRESSES)
    def take(self, address: int) -> None:
        taken: Any = ffi.new("struct pointer *")
        result = lib.pointers_take(self.table, address, taken)
        known = self.model.pop(address, None)
        assert result == (-errno.ENOENT if known is None else 0)
        assert known is None or (taken.bytes, taken.device) == known

    @rule(first=st.integers(401, 2000), count=st.integers(1, 600))
    def add_many(self, first: int, count: int) -> None:
        for step in range(first, first + count):
            self.add(0x7F0000000000 + step * 512, step, 0)

    @invariant()
    def counts(self) -> None:
        assert self.table.count == len(self.model)

    def teardown(self) -> None:
        for address in list(self.model):
            self.take(address)
        lib.pointers_clear(self.table)


TestPointers = Pointers.TestCase


@pytest.fixture
def table() -> Iterator[Any]:
    pointers: Any = ffi.new("struct pointers *")
    yield pointers
    lib.pointers_clear(pointers)


def test_an_unknown_address_leaves_the_answer_alone(table: Any) -> None:
    taken: Any = ffi.new("struct pointer *", (1, 2, 3))

    assert lib.pointers_take(table, 512, taken) == -errno.ENOENT
    assert lib.pointers_take(table, 0, taken) == -errno.ENOENT

    assert (taken.address, taken.bytes, taken.device) == (1, 2, 3)


@given(st.sets(st.integers(1, 2**64 - 1), max_size=500))
def test_any_addresses_are_found_again(addresses: set[int]) -> None:
    table: Any = ffi.new("struct pointers *")
    taken: Any = ffi.new("struct pointer *")
    for address in addresses:
        lib.pointers_add(table, (address, address, 1))

    for address in addresses:
        assert lib.pointers_take(table, address, taken) == 0
        assert taken.bytes == address

    lib.pointers_clear(table)
