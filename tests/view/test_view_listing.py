"""Which rows are shown, in which order."""

from dataclasses import replace

import pytest

from gpumanager.view.listing import Row, Sort, Wish, rows
from gpumanager.view.node import Seen
from tests.view.view_world import BUSY, seen


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
