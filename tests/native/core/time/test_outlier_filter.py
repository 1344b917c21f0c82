"""Which of the lengths of a kind are its own: what slices cut is told from what varies."""

from collections.abc import Iterable
from typing import Any

import pytest

from vcuda_shim._shim import ffi, lib

MICROSECOND = 1_000
MILLISECOND = 1_000_000


def own(lengths: Iterable[int]) -> tuple[int, bool]:
    """The longest own length, in microseconds, and whether longer ones are explained."""
    spread: Any = ffi.new("struct outlier_filter *")
    for length in lengths:
        lib.outlier_filter_enter(spread, length * MICROSECOND)
    found = lib.outlier_filter_own(spread)
    return found.longest_ns // MICROSECOND, bool(found.explained)


def test_nothing_is_known_of_a_few() -> None:
    assert own([50] * (lib.OUTLIER_FILTER_LEAST - 1)) == (0, False)
    assert own([50] * lib.OUTLIER_FILTER_LEAST) == (50, True)


@pytest.mark.parametrize("length", [50, 200, 1000])
def test_what_slices_cut_now_and_then_is_explained(length: int) -> None:
    every = 2000 // length  # so many launches fill a slice
    lengths = [length + (2000 if turn % every == 0 else 0) for turn in range(32)]

    assert own(lengths) == (length, True)


def test_nearly_all_launches_that_fill_a_slice_are_cut() -> None:
    """Slices of 1,024 us, and a neighbour: 1 ms is seen now and then, as a rule it is 2.1."""
    assert own([1000, 2124] + [2124] * 29 + [1000]) == (1000, True)
    assert own([500, 1600] + [1600] * 29 + [500]) == (1600, True)


@pytest.mark.parametrize("longer", [300, 1000, 2000])
def test_every_second_launch_is_not_cut_by_chance(longer: int) -> None:
    assert own([50, longer] * 16) == (longer, True)


def test_lengths_beyond_a_slice_are_the_kinds_own_but_not_to_be_told_from_cut_ones() -> None:
    assert own([50, 9000] * 16) == (50, False)
    assert own([9000] * 32) == (0, False)


def test_the_last_ones_count() -> None:
    assert own([50, 1000] * 40 + [50] * lib.OUTLIER_FILTER_SIZE) == (50, True)
    assert own([50] * 90 + [1000] * lib.OUTLIER_FILTER_SIZE) == (1000, True)
