"""How many launches may be in flight, as drains show it."""

from typing import Any, NamedTuple

import pytest

from vcuda_shim._shim import ffi, lib

US, MS = 1_000, 1_000_000
SOONEST = 20 * US
FIRST, MOST = int(lib.RUN_AHEAD_FIRST), int(lib.RUN_AHEAD_MOST)
WINDOW = 1 * MS


class Drain(NamedTuple):
    """`launches`, the first made at `begun`, were seen to have ended at `now`."""

    begun: int
    launches: int
    now: int
    window: int = WINDOW
    kind: int = lib.DRAIN_ALONE


@pytest.fixture
def ahead() -> Any:
    return ffi.new("struct run_ahead *")


def learn(ahead: Any, *drains: Drain) -> int:
    for drain in drains:
        lib.run_ahead_learn(ahead, *drain)
    return int(lib.run_ahead_most(ahead))


def steady(each: int, count: int = 40, launches: int = 4, **more: Any) -> list[Drain]:
    """Drains of launches that take `each`, one drain behind another."""
    span = each * launches
    return [Drain(at * span, launches, (at + 1) * span, **more) for at in range(count)]


def test_before_anything_is_known_a_few_are(ahead: Any) -> None:
    assert lib.run_ahead_most(ahead) == FIRST
    assert lib.run_ahead_next_look(ahead, 5 * MS, 100, 5 * MS) == 5 * MS + SOONEST


@pytest.mark.parametrize(
    ("each", "most"),
    [
        (1, MOST),
        (5 * US, 200),
        (200 * US, 5),
        (999 * US, 1),
        (1 * MS, 1),
        (40 * MS, 1),
    ],
)
def test_they_last_about_a_window(ahead: Any, each: int, most: int) -> None:
    assert learn(ahead, *steady(each)) == most
    assert (ahead.each_ns, ahead.longest_ns) == pytest.approx((each, each), rel=0.01)


def test_a_wider_window_holds_more(ahead: Any) -> None:
    assert learn(ahead, *steady(200 * US, window=4 * MS)) == 20


def test_growth_doubles_at_most_and_shrinking_is_at_once(ahead: Any) -> None:
    drains = steady(5 * US, 7)

    assert [learn(ahead, drain) for drain in drains] == [8, 16, 32, 64, 128, 200, 200]
    assert learn(ahead, Drain(drains[-1].now, 1, drains[-1].now + MS)) == 1


@pytest.mark.parametrize(
    "nothing",
    [
        pytest.param(Drain(10 * MS, 0, 20 * MS), id="no launches"),
        pytest.param(Drain(10 * MS, 4, 10 * MS), id="no time"),
        pytest.param(Drain(10 * MS, 4, 9 * MS), id="a clock that went back"),
    ],
)
def test_what_shows_nothing_is_not_learnt_from(ahead: Any, nothing: Drain) -> None:
    before = learn(ahead, *steady(200 * US, 5))

    assert learn(ahead, nothing) == before
    assert ahead.each_ns == 200 * US


def test_what_was_queued_behind_others_begins_when_they_ended(ahead: Any) -> None:
    learn(ahead, Drain(0, 4, 800 * US), Drain(10 * US, 4, 1600 * US))

    assert ahead.each_ns == 200 * US


def test_an_idle_gpu_is_not_charged_to_the_next_launch(ahead: Any) -> None:
    learn(ahead, Drain(0, 4, 800 * US), Drain(100 * MS, 4, 100 * MS + 800 * US))

    assert ahead.each_ns == 200 * US


@pytest.mark.parametrize(
    ("each", "most"),
    [(100 * US, 10), (200 * US, 5), (400 * US, 5)],
    ids=["shorter: grows", "the same", "longer: not believed"],
)
def test_beside_others_only_growth_is_believed(ahead: Any, each: int, most: int) -> None:
    learn(ahead, *steady(200 * US, 5))

    beside = [
        drain._replace(begun=4 * MS + drain.begun, now=4 * MS + drain.now, kind=lib.DRAIN_SHARED)
        for drain in steady(each, 20)
    ]
    assert learn(ahead, *beside) == most
    assert ahead.each_ns == min(each, 200 * US)


def test_where_nobody_tells_who_else_is_there_the_shortest_drains_count(ahead: Any) -> None:
    """Beside three others three of four drains take four times as long."""
    drains = [
        drain._replace(now=drain.now + (0 if at % 4 == 0 else 12 * MS))
        for at, drain in enumerate(steady(1 * MS, 400, kind=lib.DRAIN_UNTOLD))
    ]
    learn(ahead, *[drain._replace(begun=drain.now - 4 * MS) for drain in drains])

    assert ahead.each_ns == pytest.approx(1 * MS, rel=0.05)


def test_launches_that_had_ended_before_unmarked_do_not_look_short(ahead: Any) -> None:
    """Four processes have slices of 2 ms in turn. At the end of its own one sees 100 launches of
    20 us, and at once 100 more, which carried no mark."""
    slices = [at * 8 * MS for at in range(20)]
    learn(ahead, *steady(20 * US, 5))
    for begun in slices:
        learn(
            ahead,
            Drain(begun, 50, begun + 8 * MS, kind=lib.DRAIN_SHARED),
            Drain(begun, 50, begun + 8 * MS + 14 * US, kind=lib.DRAIN_SHARED),
        )

    assert ahead.each_ns == 20 * US


def test_a_drain_that_is_not_believed_ends_all_the_same(ahead: Any) -> None:
    learn(ahead, *steady(200 * US, 5), Drain(4 * MS, 4, 40 * MS, kind=lib.DRAIN_SHARED))

    assert ahead.ended_ns == 40 * MS
    assert lib.run_ahead_next_look(ahead, 4 * MS, 2, 0) == 40 * MS + 300 * US


def test_who_gave_way_keeps_more_in_flight_from_then_on(ahead: Any) -> None:
    learn(ahead, *steady(40 * MS))
    seen = []
    for _ in range(8):
        lib.run_ahead_give_way(ahead)
        seen.append(learn(ahead, *steady(40 * MS, 1)))

    assert seen == [2, 4, 8, 16, 32, 64, 64, 64]


def test_giving_way_never_makes_it_less(ahead: Any) -> None:
    learn(ahead, *steady(5 * US))
    lib.run_ahead_give_way(ahead)

    assert lib.run_ahead_most(ahead) == 200


def test_the_longest_is_forgotten_slowly(ahead: Any) -> None:
    learn(ahead, Drain(0, 1, 40 * MS))
    long_ago = [Drain(at * MS, 1, at * MS + 100 * US) for at in range(41, 141)]

    learn(ahead, *long_ago[:10])
    assert 30 * MS < ahead.longest_ns < 40 * MS
    learn(ahead, *long_ago[10:])
    assert ahead.longest_ns < 10 * MS


@pytest.mark.parametrize(
    ("begun", "launches", "now", "when"),
    [
        pytest.param(0, 3, 0, 4 * MS + 450 * US, id="behind what ended last"),
        pytest.param(9 * MS, 3, 0, 9 * MS + 450 * US, id="on an idle GPU"),
        pytest.param(0, 3, 4 * MS + 500 * US, 4 * MS + 575 * US, id="again, soon"),
        pytest.param(0, 100, 20 * MS, 20 * MS + 200 * US, id="of much no later than that"),
        pytest.param(0, 0, 9 * MS, 9 * MS + SOONEST, id="nothing"),
    ],
)
def test_a_look_comes_before_the_end_that_is_known(
    ahead: Any, begun: int, launches: int, now: int, when: int
) -> None:
    learn(ahead, *steady(200 * US, 5))

    assert lib.run_ahead_next_look(ahead, begun, launches, now) == when


def test_shorter_launches_are_seen_to_be_shorter(ahead: Any) -> None:
    """Each look comes when it is due, and finds what has ended 200 us after it began."""
    learn(ahead, *steady(1 * MS, 5))
    for _ in range(60):
        begun = int(ahead.ended_ns)
        now = lib.run_ahead_next_look(ahead, begun, 1, begun)
        while now < begun + 200 * US:
            now = lib.run_ahead_next_look(ahead, begun, 1, now)
        learn(ahead, Drain(begun, 1, now))

    assert 200 * US <= ahead.each_ns < 240 * US
