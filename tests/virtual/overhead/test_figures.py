"""What NVML's figure of a process contains is learnt from two measurements of one process."""

import itertools

import pytest

from gpumanager.units import MIB
from gpumanager.virtual.overhead.process_figure import Beside, Contained, FigureContents

CONTEXT = 300 * MIB


@pytest.mark.parametrize(("follows", "known"), [(0, False), (1, True)])
def test_a_figure_that_stays_or_follows_tells(follows: int, *, known: bool) -> None:
    contents = FigureContents()
    sizes = [0, 100 * MIB, 40 * MIB, 500 * MIB]

    measured = [{0: Beside(CONTEXT + follows * size, size, 0)} for size in sizes]
    for before, now in itertools.pairwise(measured):
        contents.compare(before, now)

    assert contents.managed.known is known
    assert contents.imported.known is None


def test_memory_of_others_tells_by_itself() -> None:
    contents = FigureContents()

    contents.compare({0: Beside(CONTEXT, MIB, 0)}, {0: Beside(CONTEXT, MIB, 64 * MIB)})

    assert (contents.managed.known, contents.imported.known) == (None, False)


def test_one_coincidence_lowers_no_charge() -> None:
    """A module of 64 MiB was loaded while as much managed memory was allocated."""
    contained = Contained()

    contained.observe(64 * MIB, 64 * MIB)

    assert contained.known is None


def test_coincidences_in_between_do_not_add_up() -> None:
    contained = Contained()

    for figure_change in (64 * MIB, 0, 64 * MIB):
        contained.observe(64 * MIB, figure_change)

    assert contained.known is False


def test_small_changes_and_changes_of_both_tell_nothing() -> None:
    contents = FigureContents()
    before = {0: Beside(CONTEXT, 0, 0)}

    contents.compare(before, {0: Beside(CONTEXT, MIB, 0)})
    contents.compare(before, {0: Beside(CONTEXT, 64 * MIB, 64 * MIB)})
    contents.compare(before, {1: Beside(CONTEXT, 64 * MIB, 0)})

    assert [one.known for one in contents] == [None, None]
