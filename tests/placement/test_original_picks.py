"""The picks of the original gpu-manager, executed with its own code (gpu-manager, issue 2).

Where its ties are random, any of its possible picks is right. Where its greedy descent breaks a
pair although an orphan is free, ours differs on purpose.
"""

import pytest

from gpumanager.gpu.values import Bond, Level
from tests.placement.placement_nodes import make_node, six

GIB_IN_BLOCKS = 4

LINK = [
    ([], 200, [[0, 1], [2, 3], [4, 5]]),
    ([], 300, [[0, 1, 2]]),
    ([], 400, [[0, 1, 2, 3]]),
    ([], 500, [[0, 1, 2, 3, 4]]),
    ([], 600, [[0, 1, 2, 3, 4, 5]]),
    ([], 700, [None]),
    ([0], 200, [[2, 3], [4, 5]]),
    ([0], 300, [[1, 2, 3]]),
    ([2], 200, [[0, 1], [4, 5]]),
    ([0, 2], 200, [[4, 5]]),
    ([0, 2, 4], 200, [[1, 3]]),
    ([0, 1, 2], 300, [[3, 4, 5]]),
]


@pytest.mark.parametrize(("busy", "cores", "picks"), LINK)
def test_link_picks_what_the_original_may_pick(
    busy: list[int], cores: int, picks: list[list[int] | None]
) -> None:
    assert six().occupy(dict.fromkeys(busy, 100)).pick(cores) in picks


def test_link_never_gives_a_shared_gpu_whole() -> None:
    assert six().occupy({0: 10}).pick(200) in ([2, 3], [4, 5])


FRAGMENT = [
    ([], [[4]]),
    ([4], [[5]]),
    ([4, 5], [[0], [2]]),
    ([0, 4], [[1], [5]]),
    ([0, 1, 2, 3, 4, 5], [None]),
]


@pytest.mark.parametrize(("busy", "picks"), FRAGMENT)
def test_fragment_picks_what_the_original_may_pick(
    busy: list[int], picks: list[list[int] | None]
) -> None:
    assert six().occupy(dict.fromkeys(busy, 100)).pick(100) in picks


@pytest.mark.parametrize(
    ("held", "orphan"), [({0: 100}, 1), ({2: 100}, 3), ({3: 50}, 2), ({0: 100, 4: 100}, 5)]
)
def test_fragment_takes_the_orphan_where_the_original_breaks_the_pair_4_5(
    held: dict[int, int], orphan: int
) -> None:
    assert six().occupy(held).pick(100) == [orphan]


SHARE: list[tuple[dict[int, tuple[int, int]], tuple[int, int], list[int] | None]] = [
    ({}, (50, 1), [0]),
    ({0: (50, 0)}, (60, 1), [1]),
    ({0: (50, 0)}, (50, 1), [0]),
    ({0: (50, 32), 1: (30, 4)}, (40, 36), [1]),
    ({0: (50, 32), 1: (30, 4)}, (40, 32), [0]),
    ({1: (50, 16), 2: (50, 32)}, (20, 1), [2]),
    ({3: (99, 0)}, (1, 1), [3]),
    ({0: (100, 0)}, (1, 1), [1]),
    ({}, (10, 17 * GIB_IN_BLOCKS), None),
]


@pytest.mark.parametrize(("held", "asked", "pick"), SHARE)
def test_share_picks_what_the_original_picks(
    held: dict[int, tuple[int, int]],
    asked: tuple[int, int],
    pick: list[int] | None,
) -> None:
    assert six().occupy(held).pick(*asked) == pick


def test_a_single_gpu_is_given_whole() -> None:
    assert make_node(1, lambda *_: Bond(Level.SYS)).pick(100) == [0]


def test_the_originals_allocator_sequence_ends_with_every_gpu_full() -> None:
    """TestAllocator: its annotations name the picks; here the same ones follow from the rules."""
    node = six().occupy({0: 100, 1: 100, 2: 100})

    assert node.pick(100) == [3]
    node = node.occupy({3: 100})
    assert node.pick(100) == [4]
    node = node.occupy({4: 100})
    assert node.pick(100) == [5]

    shared = six().occupy({0: 100, 1: 100, 2: 100, 5: 100, 3: (50, 1)})
    assert shared.pick(60, 1) == [4]
    shared = shared.occupy({4: (60, 1)})
    assert shared.pick(50, 1) == [3]
    assert shared.occupy({3: (50, 1)}).pick(100) is None
