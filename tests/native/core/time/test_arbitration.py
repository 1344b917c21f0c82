"""Processes of one container take turns, on a clock of the test."""

from itertools import pairwise
from typing import Any

import pytest

from vcuda_shim._shim import ffi, lib

MILLISECOND = 1_000_000
SECOND = 1_000 * MILLISECOND
START = 50 * SECOND
MILLION = 1_000_000
BURST = 20 * MILLISECOND


def terms(percent: int) -> Any:
    price = 1 << lib.LIMITER_PRICE_BITS
    given = (percent * 10_000, BURST, BURST, 1000 * MILLISECOND, MILLION, price)
    return ffi.new("struct limiter_terms *", given)[0]


class Sibling:
    """Always has a launch to make, of the same cost, and asks again when it is told to.

    batch: launches after which it waits until they have ended; 0: never.
    """

    def __init__(self, container: Any, slot: int, cost: int, percent: int, batch: int = 0) -> None:
        self.meter, self.latest = container
        self.slot, self.cost, self.terms = slot, cost, terms(percent)
        self.batch = batch
        self.at = START + slot
        self.served = ffi.new("uint64_t *")
        self.wait = self._wait()
        self.launched: list[int] = []

    def _wait(self) -> Any:
        served = lib.arbitration_served(self.latest, self.served, self.terms)
        return ffi.new("struct arbitration_wait *", (self.slot, self.at, served))

    def ask(self) -> bool:
        pause = lib.arbitration_admit(self.meter, self.terms, self.wait, self.at, self.cost)
        if pause == 0:
            self.launched.append(self.at)
            lib.arbitration_serve(self.latest, self.served, self.wait, self.cost)
            self.at += 1000
            if self.batch and len(self.launched) % self.batch == 0:
                self.at = max(self.at, self.meter.drained_at)
            self.wait = self._wait()
        self.at += min(pause, 50 * MILLISECOND)
        return bool(pause == 0)

    def longest_gap(self) -> int:
        times = [START, *self.launched]
        return max(after - before for before, after in pairwise(times))


def container() -> Any:
    """Its meter, and what whoever launched last had had."""
    return ffi.new("struct vcuda_meter *"), ffi.new("uint64_t *")


def crowd(count: int, cost: int, percent: int) -> list[Sibling]:
    shared = container()
    return [Sibling(shared, slot, cost, percent) for slot in range(count)]


def run(siblings: list[Sibling], seconds: float) -> None:
    while (first := min(siblings, key=lambda one: one.at)).at < START + seconds * SECOND:
        first.ask()


@pytest.mark.parametrize(
    ("count", "cost", "percent"),
    [(3, 2 * MILLISECOND, 50), (4, 20 * MILLISECOND, 90), (4, 500 * MILLISECOND, 10)],
)
def test_siblings_share_evenly_and_nobody_waits_for_many_turns(
    count: int, cost: int, percent: int
) -> None:
    siblings = crowd(count, cost, percent)
    turn = max(cost * 100 // percent, 2 * BURST * 100 // percent)

    run(siblings, 200 * turn / SECOND)

    counts = [len(one.launched) for one in siblings]
    assert max(counts) <= 1.1 * min(counts) + 1
    assert max(one.longest_gap() for one in siblings) <= 2 * count * turn


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((2 * MILLISECOND, 1), (2 * MILLISECOND, 10)),
        ((2 * MILLISECOND, 1), (20 * MILLISECOND, 0)),
        ((MILLISECOND // 5, 10), (150 * MILLISECOND, 1)),
        ((500 * MILLISECOND, 1), (MILLISECOND, 0)),
    ],
)
@pytest.mark.parametrize("percent", [20, 50, 80])
def test_unlike_siblings_share_evenly(
    one: tuple[int, int], other: tuple[int, int], percent: int
) -> None:
    shared = container()
    siblings = [
        Sibling(shared, slot, cost, percent, batch)
        for slot, (cost, batch) in enumerate((one, other))
    ]

    run(siblings, 60)

    shares = [100 * len(each.launched) * each.cost / (60 * SECOND) for each in siblings]
    assert shares == pytest.approx([percent / 2] * 2, abs=1 + 100 / 60)


def test_a_process_that_begins_late_is_not_owed_what_the_others_had_before() -> None:
    first, late = crowd(2, 2 * MILLISECOND, 50)
    run([first], 60)
    late.at = first.at

    run([first, late], 70)

    assert len(late.launched) * late.cost <= 5 * SECOND * 0.5 + lib.ARBITRATION_BURSTS * BURST


@pytest.mark.parametrize("percent", [10, 50, 90])
def test_taking_turns_costs_nothing_of_the_share(percent: int) -> None:
    siblings = crowd(4, 2 * MILLISECOND, percent)

    run(siblings, 10)

    busy = sum(len(one.launched) for one in siblings) * 2 * MILLISECOND
    saved_and_ahead = 2 * BURST * percent // 100
    due = percent * 10 * SECOND // 100
    assert due - 2 * MILLISECOND <= busy <= due + saved_and_ahead + 2 * MILLISECOND


def test_one_that_died_while_it_waited_longest_holds_nobody_up_for_long() -> None:
    first, second, dead = crowd(3, 2 * MILLISECOND, 50)
    run([first, second, dead], 1)
    while dead.ask():
        pass
    dead_at, dead.at = dead.at, START + 100 * SECOND
    first.at, second.at = max(first.at, dead_at), max(second.at, dead_at)
    done = len(first.launched) + len(second.launched)

    run([first, second], (dead_at - START) / SECOND + 2)

    made = len(first.launched) + len(second.launched) - done
    assert made * 2 * MILLISECOND == pytest.approx(SECOND, rel=0.05)


def test_nobody_else_launches_while_the_turn_is_held_and_renewed() -> None:
    first, second = crowd(2, MILLISECOND, 50)
    assert first.ask()
    lib.arbitration_hold(first.meter, first.slot, START, True)
    second.at = START + lib.ARBITRATION_HOLD_NS - 1

    assert not second.ask()

    lib.arbitration_hold(first.meter, first.slot, START + lib.ARBITRATION_HOLD_NS, True)
    second.at = START + lib.ARBITRATION_HOLD_NS + 1
    assert not second.ask()


def test_a_turn_that_is_let_go_or_not_renewed_is_another_s() -> None:
    for release in (True, False):
        first, second = crowd(2, MILLISECOND, 50)
        assert first.ask()
        lib.arbitration_hold(first.meter, first.slot, START, True)
        if release:
            lib.arbitration_hold(first.meter, first.slot, START + 1, False)
        second.at = START + (MILLISECOND if release else lib.ARBITRATION_HOLD_NS)

        assert second.ask()
        assert not lib.arbitration_alone(first.meter, first.slot, second.at)


def test_a_process_is_alone_from_when_all_that_was_charged_before_its_turn_has_drained() -> None:
    first, second = crowd(2, 4 * MILLISECOND, 50)
    assert first.ask()
    alone_first = lib.arbitration_alone(first.meter, first.slot, START)
    drained, second.at = START + first.cost, START + MILLISECOND
    assert second.ask()

    assert alone_first
    assert not lib.arbitration_alone(second.meter, second.slot, drained - 1)
    assert lib.arbitration_alone(second.meter, second.slot, drained)
    assert not lib.arbitration_alone(second.meter, first.slot, drained)


def test_its_own_work_in_flight_is_no_company() -> None:
    (one,) = crowd(1, 4 * MILLISECOND, 50)

    assert one.ask()
    assert one.ask()

    assert lib.arbitration_alone(one.meter, one.slot, START)


def test_what_was_charged_too_little_drains_later_and_too_much_no_sooner() -> None:
    first, second = crowd(2, MILLISECOND, 50)
    assert first.ask()
    lib.limiter_settle(first.meter, first.terms, 8 * MILLISECOND)
    lib.limiter_settle(first.meter, first.terms, -5 * MILLISECOND)
    second.at = START + 9 * MILLISECOND - 1
    assert second.ask()

    assert lib.arbitration_alone(second.meter, second.slot, START + 9 * MILLISECOND)


def test_who_has_no_turn_cannot_hold_it() -> None:
    first, second = crowd(2, MILLISECOND, 50)
    assert first.ask()

    lib.arbitration_hold(first.meter, second.slot, START, True)

    assert first.meter.held_until == 0


def test_when_kernels_wait_for_one_another_a_launch_gets_through_all_the_same() -> None:
    """Those on the GPU take time that is charged, so what is owed grows and is never paid."""
    siblings = crowd(3, MILLISECOND, 10)
    meter = siblings[0].meter

    for tick in range(350):
        run(siblings, tick / 10)
        meter.virtual_time = max(meter.virtual_time, START) + SECOND

    launched = sorted(at for one in siblings for at in one.launched)
    assert launched[-1] > START + lib.ARBITRATION_PATIENCE_S * SECOND


@pytest.mark.parametrize("count", [1, 3])
def test_kernels_that_outlast_all_patience_get_their_share_and_no_more(count: int) -> None:
    siblings = crowd(count, 20 * SECOND, 10)

    run(siblings, 10_000)

    launched = sum(len(one.launched) for one in siblings)
    assert launched * 20 / 10_000 == pytest.approx(0.10, rel=0.06)
