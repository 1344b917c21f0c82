"""The benchmark of the extender: it runs, loses nothing, and asks as kube-scheduler does."""

import json
import random
from collections import Counter
from types import SimpleNamespace

import pytest
import scheduler
from extender.cluster import BLOCKS, GPUS, SHAPES, node_object, placed, shape_of
from extender.orders import AllFeasible, Everything, Feasible, default_count, pattern
from extender.report import Figures
from rich.progress import Progress

NAMES = [f"n{number}" for number in range(50)]


@pytest.fixture(scope="module")
def figures() -> Figures:
    """Of one run."""
    return scheduler.Bench(scheduler.arguments(["--quick"]), Progress(disable=True)).run()


@pytest.fixture
def ran(figures: Figures, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command runs has run already."""
    monkeypatch.setattr(scheduler, "Bench", lambda *_: SimpleNamespace(run=lambda: figures))


@pytest.mark.usefixtures("ran")
def test_every_pod_is_bound_in_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert scheduler.main(["--quick", "--json"]) == 0

    said = json.loads(capsys.readouterr().out)
    assert [one["setting"] for one in said["settings"]] == ["every node", "100 %", "by default"]
    for one in said["settings"]:
        assert (one["pods"], one["apart_pods"], one["bound"]) == (40, 40, 80)
        assert (one["refused"], one["nowhere"]) == (0, 0)
        assert 0 < one["both_ms"]["p50"] <= one["both_ms"]["p99"] <= one["both_ms"]["most"]
    assert said["pods"] == said["placed_before"] + 9 * 40  # warm-ups, too
    assert said["changes"][0]["nodes"] == 100


@pytest.mark.usefixtures("ran")
def test_people_are_told_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert scheduler.main(["--quick"]) == 0

    said = capsys.readouterr().out
    for row in (
        "pods/s (bar 250, every node 120)",
        "p99, ms (bar 20)",
        "bound, refused, nowhere",
        "restarted:",
    ):
        assert row in said


@pytest.mark.parametrize(
    ("nodes", "count"), [(50, 50), (150, 100), (1000, 420), (5000, 500), (10_000, 500)]
)
def test_by_default_as_many_nodes_are_named_as_kube_scheduler_looks_for(
    nodes: int, count: int
) -> None:
    assert default_count(nodes) == count


def test_neighbours_are_named_near_each_other_and_each_once() -> None:
    order = pattern(10_000, random.Random(1))

    assert sorted(order) == list(range(10_000))
    assert max(abs(place - far) for place, far in enumerate(order)) < 10_000 // 2
    assert order[:100] != sorted(order[:100])


def test_nodes_without_enough_cores_are_not_named() -> None:
    free = [100 if number % 2 else 10 for number in range(50)]
    shape = next(one for one in SHAPES if one.cores == 100)

    named = Feasible(NAMES, free, 50, random.Random(1)).names(shape).decode().split('","')

    assert sorted(named) == sorted(NAMES[1::2])


def test_the_search_goes_on_where_it_ended() -> None:
    orders = Feasible(NAMES, [800] * 50, 10, random.Random(1))

    named = [set(orders.names(SHAPES[0]).decode().split('","')) for _ in range(2)]

    assert [len(one) for one in named] == [10, 10]
    assert named[0] != named[1]


def test_of_all_nodes_those_with_enough_free_cores_are_named_in_other_orders() -> None:
    free = [800] * 50
    free[3] = free[7] = SHAPES[0].cores - 1
    orders = AllFeasible(NAMES, free, random.Random(1))

    named = [orders.names(SHAPES[0]).decode().split('","') for _ in range(20)]

    assert all(sorted(one) == sorted({*NAMES} - {NAMES[3], NAMES[7]}) for one in named)
    assert len(set(map(tuple, named))) > 1


def test_every_node_is_named_in_another_order_each_time() -> None:
    orders = Everything(NAMES, random.Random(1))

    texts = {orders.names(SHAPES[0]) for _ in range(20)}

    assert len(texts) > 5
    assert {tuple(sorted(text.decode().split('","'))) for text in texts} == {tuple(sorted(NAMES))}


def test_pods_that_are_there_already_fit_on_their_gpus() -> None:
    cores: Counter[tuple[int, int]] = Counter()
    blocks: Counter[tuple[int, int]] = Counter()

    for one in placed(20, 90):
        shape = shape_of(one.pod)
        assert len(one.gpus) == max(1, shape.cores // 100)
        for gpu in one.gpus:
            cores[one.node, gpu] += min(shape.cores, 100)
            blocks[one.node, gpu] += BLOCKS if shape.cores >= 100 else shape.blocks

    assert max(cores.values()) <= 100
    assert max(blocks.values()) <= BLOCKS
    assert all(gpu < GPUS for _, gpu in cores)


def test_all_shapes_occur_as_often_as_they_should() -> None:
    found = Counter(shape_of(number) for number in range(20_000))

    weight = sum(shape.weight for shape in SHAPES)
    for shape in SHAPES:
        assert found[shape] == pytest.approx(20_000 * shape.weight / weight, rel=0.1)


def test_nodes_differ_in_their_names_and_gpus_alone() -> None:
    first, second = json.dumps(node_object(1)), json.dumps(node_object(2))

    assert first.replace("node-00001", "node-00002").replace("00000001-", "00000002-") == second
