"""Which rows are shown, in which order, and how much they are throttled."""

from dataclasses import replace

import pytest

from gpumanager.view.listing import Row, Sort, Wish, rows
from gpumanager.view.node import Seen
from gpumanager.view.throttling import ThrottlingHistory
from tests.view.view_world import BUSY, container, device, seen


def names(found: tuple[Row, ...]) -> list[str]:
    return [
        row.container.pod or ""
        if row.container
        else f"GPU{row.gpu.index}"
        if row.gpu
        else row.seen.name
        for row in found
    ]


NODE = seen(*BUSY, gpus=3)
ALL = ["GPU0", "train-0", "answers", "GPU1", "whole-one", "GPU2"]


def test_containers_stand_below_their_gpus() -> None:
    assert names(rows([NODE], Wish())) == ALL


@pytest.mark.parametrize(
    ("wish", "shown"),
    [
        (Wish(turned=True), ["GPU2", "GPU1", "whole-one", "GPU0", "answers", "train-0"]),
        (Wish(Sort.MEMORY), ["GPU1", "whole-one", "GPU0", "train-0", "answers", "GPU2"]),
        (Wish(Sort.SHARE), ["GPU0", "answers", "train-0", "GPU1", "whole-one", "GPU2"]),
        (Wish(Sort.WAIT), ["GPU0", "train-0", "answers", "GPU1", "whole-one", "GPU2"]),
        (Wish(Sort.REFUSALS, flat=True), ["train-0", "answers", "whole-one"]),
        (Wish(Sort.MEMORY, flat=True, turned=True), ["answers", "train-0", "whole-one"]),
        (Wish(idle=False), ["GPU0", "train-0", "answers", "GPU1", "whole-one"]),
        (Wish(needle="TRAIN"), ["GPU0", "train-0"]),
        (Wish(needle="gpu1"), ["GPU1", "whole-one"]),
        (Wish(needle="nobody"), []),
        (Wish(needle="web/", flat=True), ["answers"]),
    ],
)
def test_rows_are_as_the_reader_wishes(wish: Wish, shown: list[str]) -> None:
    assert names(rows([NODE], wish)) == shown


def test_a_folded_gpu_hides_its_containers_until_it_is_opened_again() -> None:
    first = rows([NODE], Wish())[0].key
    folded = Wish().fold(first)

    assert names(rows([NODE], folded)) == ["GPU0", "GPU1", "whole-one", "GPU2"]
    assert names(rows([NODE], folded.fold(first))) == ALL


def test_several_nodes_have_rows_of_their_own_and_fold() -> None:
    other = replace(seen(gpus=1, agent="http://node-b:5678"))
    nodes = [NODE, other]

    assert names(rows(nodes, Wish())) == ["node-a", *ALL, "node-a", "GPU0"]
    folded = Wish(folded=frozenset({NODE.agent}))
    assert names(rows(nodes, folded)) == ["node-a", "node-a", "GPU0"]
    assert names(rows(nodes, Wish(needle="answers"))) == ["node-a", "GPU0", "answers"]


def test_an_agent_that_never_answered_is_a_row_without_gpus() -> None:
    silent = Seen("http://node-c:1", trouble="Connection refused")

    assert names(rows([NODE, silent], Wish()))[-1] == "node-c:1"


def test_choosing_the_same_order_again_turns_it_round() -> None:
    wish = Wish().by(Sort.SHARE)

    assert (wish.sort, wish.turned) == (Sort.SHARE, False)
    assert wish.by(Sort.SHARE).turned
    assert wish.next(1).sort is Sort.WAIT
    assert Wish().next(-1).sort is Sort.REFUSALS


# Throttling as a rate of the last seconds, from sums since a container's start.


def look(at: float, seconds: float | None) -> Seen:
    views = [] if seconds is None else [container("a/p", device(throttled_ns=int(seconds * 1e9)))]
    return replace(seen(*views), at=at)


def rate(*looks: tuple[float, float | None]) -> float | None:
    """After all of these looks: at which time, throttled for how long since the start."""
    history, last = ThrottlingHistory(), look(0, None)
    for at, seconds in looks:
        last = look(at, seconds)
        history = history.with_sample([last])
    (found,) = history.rated([last])
    assert found.node
    ((_, (_, row)),) = found.node.shares
    return row.throttled


@pytest.mark.parametrize(
    ("looks", "percent"),
    [
        ([(1, 100)], None),
        ([(1, 100), (2, 100)], 0),
        ([(1, 100), (2, 100.71)], 71),
        ([(1, 0), (2, 0), (3, 1), (4, 2)], 200 / 3),  # two looks between two samples
        ([(1, None), (2, 10), (3, 10.5)], 50),  # it came at the second look
        ([(1, 50), (2, 0.25)], 0),  # it began again
        ([(1, 0), (2, 4)], 100),  # four threads waited
        ([(n, max(0, n - 10)) for n in range(1, 31)], 100),  # what was long ago is forgotten
        ([(n, min(n, 10)) for n in range(1, 31)], 0),
    ],
)
def test_the_rate_is_of_the_last_seconds(
    looks: list[tuple[float, float | None]], percent: float | None
) -> None:
    assert rate(*looks) == (None if percent is None else pytest.approx(percent))


def test_a_look_that_brought_nothing_new_changes_nothing() -> None:
    history = ThrottlingHistory().with_sample([look(1, 0)])

    away = replace(look(1, 0), trouble="Connection refused")
    assert history.with_sample([away]) == history
    assert history.with_sample([look(1, 0)]) == history
