"""A cluster that lives: what is learnt of pods that leave, and what it changes."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.placement.least_waste import STEP, breaks_idle_node
from gpumanager.placement.policies import DEFAULT_POLICY, POLICIES
from gpumanager.placement.values import FreeNode, PodRequest
from gpumanager.placement.workload_mix import HALF_LIFE, Mix, Turnover, mix_of
from tests.placement.free_nodes import ask, asks, living, room, rooms, usual

DEFAULT = POLICIES[DEFAULT_POLICY]
parts = st.floats(0, 1)


def points(here: FreeNode, wanted: PodRequest, mix: Mix) -> float:
    score = DEFAULT.score(here, wanted, mix)
    return float("-inf") if score is None else score.points


def seen(events: str, times: int = 1) -> Turnover:
    """`+` comes, `-` leaves."""
    turnover = Turnover()
    for one in events * times:
        turnover.count_arrival() if one == "+" else turnover.count_departure()
    return turnover


@given(st.text("+-", max_size=200))
def test_leaving_is_a_part_and_none_while_nobody_leaves(events: str) -> None:
    assert 0 <= seen(events).leaving <= 1
    assert seen(events.replace("-", "")).leaving == 0.0


def test_leaving_is_how_many_leave_for_one_that_comes() -> None:
    assert seen("+-", 100).leaving == pytest.approx(1, abs=0.001)
    assert seen("++-", 2000).leaving == pytest.approx(0.5, abs=0.001)
    assert seen("+---", 100).leaving == 1


def test_pods_that_left_long_ago_count_less() -> None:
    drained = seen("+" * 2 * HALF_LIFE + "-" * HALF_LIFE)
    before = drained.leaving
    for _ in range(5 * HALF_LIFE):
        drained.count_arrival()

    assert before > 0.5
    assert drained.leaving < 0.05


def test_what_is_usual_is_looked_at_seldom() -> None:
    turnover = Turnover()

    assert [n for n in range(1, 3001) if turnover.count_arrival()] == [100, 300, 1000, 2000, 3000]


@given(rooms(), asks(), st.lists(st.tuples(asks(), st.floats(0.1, 10))), parts, parts)
def test_the_more_leave_the_more_an_idle_node_costs(
    here: FreeNode,
    wanted: PodRequest,
    typical: list[tuple[PodRequest, float]],
    one: float,
    other: float,
) -> None:
    """Of pods that take no CPU, so that nothing but the price depends on who leaves."""
    known = [(ask(100), 1.0), *typical]
    mix = mix_of([(replace(a, cpu_milli=0, memory_mib=0), part) for a, part in known], 1.0)
    less, more = (points(here, wanted, living(mix, by)) for by in sorted((one, other)))

    assert less >= more
    assert less == more or breaks_idle_node(here, wanted)


@pytest.mark.parametrize("leaving", [0.0, 0.3, 0.6, 1.0])
def test_the_price_is_of_twenty_cores_where_all_that_come_leave(leaving: float) -> None:
    fills = usual((100, 0, 1))
    idle = room(100, 100)

    less = points(idle, ask(100), fills) - points(idle, ask(100), living(fills, leaving))

    assert less == math.ceil(20 * leaving / STEP - 1 / 3)


def test_an_idle_node_is_broken_only_where_something_of_it_is_left() -> None:
    idle, broken = room(100, 100), room(100, 50)

    assert breaks_idle_node(idle, ask(100))
    assert breaks_idle_node(idle, ask(30))
    assert not breaks_idle_node(idle, ask(200))
    assert not breaks_idle_node(idle, ask())
    assert not breaks_idle_node(broken, ask(50))


def test_who_lives_among_comers_and_goers_strands_a_gpu_for_now_and_keeps_a_node_idle() -> None:
    idle, short_of_cpu = room(*[100] * 8), room(0, *[100] * 5, cpus=9)
    fills = usual((100, 4, 1))
    lives = living(fills, 1.0)
    wanted = ask(100, cpus=4)

    assert points(idle, wanted, fills) > points(short_of_cpu, wanted, fills)
    assert points(idle, wanted, lives) < points(short_of_cpu, wanted, lives)
