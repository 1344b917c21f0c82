"""What NVML's figure of a process contains is learnt from two measurements of one process."""

import itertools

import pytest

from gpumanager.limits.overhead import Beside, Contained, compare
from gpumanager.units import MIB

CONTEXT = 300 * MIB


@pytest.mark.parametrize(("follows", "known"), [(0, False), (1, True)])
def test_a_figure_that_stays_or_follows_tells(follows: int, *, known: bool) -> None:
    contents = (Contained(), Contained())
    sizes = [0, 100 * MIB, 40 * MIB, 500 * MIB]

    measured = [{0: Beside(CONTEXT + follows * size, size, 0)} for size in sizes]
    for before, now in itertools.pairwise(measured):
        compare(contents, before, now)

    assert contents[0].known is known
    assert contents[1].known is None


def test_memory_of_others_tells_by_itself() -> None:
    contents = (Contained(), Contained())

    measured = [{0: Beside(CONTEXT, MIB, size * MIB)} for size in (0, 64, 0)]
    for before, now in itertools.pairwise(measured):
        compare(contents, before, now)

    assert (contents[0].known, contents[1].known) == (None, False)


@pytest.mark.parametrize("figure_change", [0, 64 * MIB], ids=["it went", "it came"])
def test_one_coincidence_tells_nothing(figure_change: int) -> None:
    """A module of 64 MiB came, or went, while as much managed memory was allocated."""
    contained = Contained()

    contained.observe(64 * MIB, figure_change)

    assert contained.known is None


@pytest.mark.parametrize("known", [False, True])
def test_a_coincidence_changes_nothing_that_is_known(*, known: bool) -> None:
    contained = Contained()

    for seen in (known, known, not known, known, not known):
        contained.observe(64 * MIB, 64 * MIB if seen else 0)

    assert contained.known is known


def test_another_driver_is_noticed() -> None:
    contained = Contained()

    for figure_change in (64 * MIB, 64 * MIB, 0, 0):
        contained.observe(64 * MIB, figure_change)

    assert contained.known is False


def test_small_changes_and_changes_of_both_tell_nothing() -> None:
    contents = (Contained(), Contained())
    before = {0: Beside(CONTEXT, 0, 0)}

    compare(contents, before, {0: Beside(CONTEXT, MIB, 0)})
    compare(contents, before, {0: Beside(CONTEXT, 64 * MIB, 64 * MIB)})
    compare(contents, before, {1: Beside(CONTEXT, 64 * MIB, 0)})

    assert [one.known for one in contents] == [None, None]
