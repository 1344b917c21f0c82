"""Turns on a model of a GPU: shares, ceilings, lending, waits for requests, and forged hints."""

import heapq
import random
from collections.abc import Iterator

import pytest

from tests.native.arbiter.turns_play import (
    IDEAL,
    MS,
    SECOND,
    US,
    Machine,
    Play,
    Player,
    Requests,
)

H100 = Machine()


def trainer(each: int, host: int = 0, step: int = 200 * MS) -> Requests:
    while True:
        yield host, max(step // each, 1), each


def service(
    seed: int, share: float, load: float = 0.6, work: int = 3 * MS
) -> Iterator[tuple[int, int, int]]:
    """Requests at Poisson times, so that it asks for this part of its share."""
    chance = random.Random(seed)
    while True:
        yield round(chance.expovariate(share * load / work)), work // (200 * US), 200 * US


def nothing() -> Requests:
    return iter(())


def shares(play: Play, seconds: int = 4) -> list[float]:
    """After a first second, in which those that have just come use what they are given then."""
    play.until(SECOND)
    before = [player.ran for player in play.players]
    play.until((1 + seconds) * SECOND)
    had = zip(play.players, before, strict=True)
    return [(player.ran - ran) / (seconds * SECOND) for player, ran in had]


def charged(play: Play, player: Player) -> float:
    return float(play.member(player).charged_ns) / (play.now - SECOND)


def p99(player: Player) -> float:
    took = sorted(player.took)
    return took[len(took) * 99 // 100] / MS


@pytest.mark.parametrize("each", [50 * US, 200 * US, 2 * MS, 10 * MS, 40 * MS])
@pytest.mark.parametrize("weights", [(0.3, 0.7), (0.05, 0.25, 0.7), (0.1,) * 10])
def test_containers_that_always_want_the_gpu_get_their_shares(
    weights: tuple[float, ...], each: int
) -> None:
    play = Play([Player(trainer(each), weight) for weight in weights])

    assert shares(play) == pytest.approx(list(weights), abs=0.02)
    # How long a first launch is, nobody knows before it has ended.
    unknown = len(weights) * each / (4 * SECOND) if each > 10 * MS else 0.001
    assert sum(charged(play, player) for player in play.players) <= 1 + unknown * 1.2


@pytest.mark.parametrize(("each", "lost"), [(50 * US, 0.015), (2 * MS, 0.02), (10 * MS, 0.04)])
def test_hand_overs_cost_little_on_the_machine_of_an_h100(each: int, lost: float) -> None:
    play = Play([Player(trainer(each), weight) for weight in (0.3, 0.7)], H100)

    had = shares(play)

    assert sum(had) > 1 - lost
    assert had[0] / sum(had) == pytest.approx(0.3, abs=0.01)
    assert sum(play.member(player).turns for player in play.players) < 5 * 50


@pytest.mark.parametrize("each", [50 * US, 200 * US, 2 * MS, 40 * MS])
def test_a_ceiling_holds_where_nobody_else_is(each: int) -> None:
    play = Play([Player(trainer(each), 0.3, 0.3)])

    assert shares(play) == pytest.approx([0.3], abs=0.02)


def test_time_that_one_container_does_not_want_goes_to_another() -> None:
    play = Play([Player(trainer(200 * US), 0.3), Player(trainer(200 * US, 50 * MS, MS), 0.7)])

    had = shares(play)

    assert sum(had) > 0.97
    assert had[1] == pytest.approx(1 / 51, abs=0.005)


@pytest.mark.parametrize("machine", [IDEAL, H100])
@pytest.mark.parametrize(("share", "least"), [(0.1, 0.92), (0.2, 0.84), (0.5, 0.65)])
def test_a_request_beside_training_takes_little_longer_than_alone(
    share: float, least: float, machine: Machine
) -> None:
    alone = Player(service(1, share), share, arrivals=True)
    Play([alone], machine).until(10 * SECOND)
    beside, training = (
        Player(service(1, share), share, arrivals=True),
        Player(trainer(200 * US), 1 - share),
    )

    Play([beside, training], machine).until(10 * SECOND)

    assert p99(beside) < 1.25 * p99(alone) + 1
    assert training.ran > least * 10 * SECOND


@pytest.mark.parametrize("wake", [3 * US, 30 * US])
def test_a_holder_that_comes_back_at_once_keeps_its_place(wake: int) -> None:
    """Two that wait for each kernel, with 20 us between two of them. They lost a third of the GPU
    to hand-overs, where threads woke within 10 us."""
    quick = Machine(wake=wake, seen=2 * US)
    play = Play([Player(trainer(200 * US, 20 * US, 200 * US), 0.5) for _ in range(2)], quick)

    had = shares(play, 2)

    assert sum(had) > 0.85
    assert sum(play.member(player).turns for player in play.players) < 3 * 100


def in_order_of_arrival(*services: Iterator[tuple[int, int, int]]) -> Requests:
    def arrivals(requests: Iterator[tuple[int, int, int]]) -> Requests:
        at = 0
        for host, launches, each in requests:
            at += host
            yield at, launches, each

    last = 0
    for at, launches, each in heapq.merge(*map(arrivals, services)):
        yield at - last, launches, each
        last = at


@pytest.mark.parametrize("machine", [IDEAL, H100])
def test_of_two_services_none_waits_for_the_queue_of_the_other(machine: Machine) -> None:
    """Each uses less than its half, so that both have saved credit: 1.6 to 1.8 times as long, where
    the one that had less lately goes first."""
    queue = Player(in_order_of_arrival(service(1, 0.5), service(2, 0.5)), 1.0, arrivals=True)
    Play([queue], machine).until(40 * SECOND)
    two = [Player(service(seed, 0.5), 0.5, arrivals=True) for seed in (1, 2)]

    Play(two, machine).until(40 * SECOND)

    assert max(map(p99, two)) < 1.4 * p99(queue)


def test_a_service_that_is_seldom_asked_ends_a_long_request_beside_a_busy_one() -> None:
    """It wants a third of its share, and the other one nearly all: what it saved is its own. By a
    quantum each it took 45 ms."""
    seldom = Player(service(51, 0.3, 0.33, 10 * MS), 0.3, arrivals=True)
    busy = Player(service(1, 0.7, 0.86), 0.7, arrivals=True)

    Play([seldom, busy], H100).until(40 * SECOND)

    assert p99(seldom) < 28


@pytest.mark.parametrize("each", [200 * US, 2 * MS, 10 * MS, 40 * MS])
@pytest.mark.parametrize("slices", [250 * US, 2090 * US, 6 * MS])
def test_what_a_service_is_charged_does_not_depend_on_the_length_of_slices(
    slices: int, each: int
) -> None:
    """It waits for a slice of the neighbour's, and has the GPU for 3 ms then: half of that time
    would be 1.5 to 4.5 ms."""
    one = Player(service(3, 0.3, 0.5), 0.3, arrivals=True)
    play = Play([one, Player(trainer(each), 0.7)], Machine(slice=slices, switch=0))

    play.until(10 * SECOND)

    assert play.member(one).charged_ns == pytest.approx(one.ran, rel=0.12)


def test_processes_of_one_container_share_its_turns() -> None:
    first = Player(trainer(200 * US), 0.3)
    others = [Player(trainer(200 * US), container=first) for _ in range(7)]
    beside = Player(trainer(200 * US), 0.7)

    had = shares(Play([first, *others, beside]))

    assert sum(had[:-1]) == pytest.approx(0.3, abs=0.04)
    assert had[-1] == pytest.approx(0.7, abs=0.04)


@pytest.mark.parametrize("processes", [1, 8])
@pytest.mark.parametrize("longest", [0, 1, 8 * MS, SECOND])
@pytest.mark.parametrize("proved", [0, 10 * MS])
def test_forged_hints_move_neighbours_by_a_point_at_most(
    processes: int, longest: int, proved: int
) -> None:
    forger = Player(nothing(), 0.3, forges=True, longest=longest, proved=proved)
    more = [
        Player(nothing(), container=forger, forges=True, longest=longest, proved=proved)
        for _ in range(processes - 1)
    ]
    honest = [Player(trainer(200 * US), 0.5), Player(trainer(200 * US), 0.2)]

    had = shares(Play([forger, *more, *honest]), 2)[-2:]

    assert had[0] > 0.49
    assert had[1] > 0.19


@pytest.mark.parametrize(
    ("each", "theirs"),
    [(200 * US, 200 * US), (10 * MS, 200 * US), (200 * US, 10 * MS), (10 * MS, 10 * MS)],
)
@pytest.mark.parametrize("pause", [0, 2 * MS])
@pytest.mark.parametrize("lies", [1, SECOND])
def test_a_program_that_says_nothing_ended_gains_nothing(
    each: int, theirs: int, pause: int, lies: int
) -> None:
    def beside(lies: int | None) -> list[float]:
        one = Player(trainer(each, pause, 90 * MS), 0.3, lies=lies)
        honest = [Player(trainer(theirs), 0.5), Player(trainer(theirs), 0.2)]
        return shares(Play([one, *honest], H100), 2)

    assert beside(lies)[0] < max(beside(None)[0], 0.3) + 0.015


def test_a_forger_that_never_comes_is_passed_over() -> None:
    forger = Player(nothing(), 0.5, launches=False)
    honest = Player(trainer(200 * US), 0.5)
    play = Play([forger, honest])

    assert shares(play)[1] > 0.97


def test_a_service_beside_a_forger_waits_no_longer_than_beside_training() -> None:
    def beside(other: Player) -> float:
        one = Player(service(1, 0.3), 0.3, arrivals=True)
        Play([one, Player(trainer(200 * US), 0.4), other], H100).until(20 * SECOND)
        return p99(one)

    honest = beside(Player(trainer(200 * US), 0.3))

    assert beside(Player(nothing(), 0.3, forges=True)) < honest + 2
