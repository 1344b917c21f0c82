"""What was measured keeps what was charged true; a container of a model GPU, all times given."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from gpumanager.compute.account import Account, Reading, Sample
from gpumanager.compute.correction import (
    IDLE_NS,
    SCALE_LEAST,
    SCALE_MOST,
    follow,
    read,
    rest,
    settle,
)

MS = 1_000_000
PERIOD = 166_666_667
TICK = 100 * MS


@dataclass
class Launch:
    """Charged at `at`, on the GPU until `end`, with `work` done evenly in between."""

    at: int
    end: int
    work: int
    charged: int

    def done(self, now: int) -> float:
        part = (now - self.at) / (self.end - self.at)
        return self.work * min(max(part, 0.0), 1.0)


class Container:
    """Launches one kernel after another, `period` apart, each charged `factor` times its work."""

    def __init__(
        self, work: int, elapsed: int, period: int, factor: Callable[[int], float]
    ) -> None:
        self.work, self.elapsed, self.period, self.factor = work, elapsed, period, factor
        self.launches: list[Launch] = []
        self.account = Account()
        self.corrected = 0

    def run(self, seconds: float, promise: float) -> None:
        now, next_sample = 0, PERIOD
        while now < seconds * 1e9:
            now += TICK
            self._launch(now)
            self.account = read(self.account, self._reading(now))
            while next_sample <= now:
                self._follow(next_sample, promise)
                next_sample += PERIOD

    def _launch(self, now: int) -> None:
        while len(self.launches) * self.period < now:
            at = len(self.launches) * self.period
            charged = round(self.work * self.factor(len(self.launches)) * self.account.scale)
            self.launches.append(Launch(at, at + self.elapsed, self.work, charged))

    def _reading(self, now: int) -> Reading:
        charged = sum(one.charged for one in self.launches)
        retired = sum(one.charged for one in self.launches if one.end <= now)
        return Reading(now, charged + self.corrected, retired + self.corrected)

    def _busy(self, since: int, until: int) -> int:
        busy = sum(one.done(until) - one.done(since) for one in self.launches)
        percent = round(100 * busy / (until - since))
        return percent * (until - since) // 100

    def _follow(self, until: int, promise: float) -> None:
        sample = Sample(until - PERIOD, until, self._busy(until - PERIOD, until))
        self.account, wrong = follow(self.account, sample, promise)
        self.corrected += wrong

    @property
    def charged(self) -> int:
        return sum(one.charged for one in self.launches) + self.corrected

    @property
    def worked(self) -> int:
        return sum(one.work for one in self.launches)


@pytest.mark.parametrize("factor", [0.3, 0.5, 2.0, 4.0])
def test_long_kernels_charged_wrongly_are_put_right_and_then_charged_rightly(factor: float) -> None:
    container = Container(150 * MS, 300 * MS, 500 * MS, lambda _: factor)

    container.run(20, promise=0.3)

    assert container.account.scale == pytest.approx(1 / factor, rel=0.05)
    assert abs(container.charged - container.worked) < 150 * MS * max(1.0, factor)


def test_charges_that_are_right_are_left_alone() -> None:
    container = Container(1 * MS, 1 * MS, 10 * MS, lambda _: 1.0)

    container.run(20, promise=0.1)

    assert container.account.scale == 1
    assert container.corrected == 0


def test_what_is_measured_of_who_begins_after_a_rest_stands() -> None:
    account = read(Account(), Reading(0, 0, 0))
    for number in range(15):
        sample = Sample(number * PERIOD, (number + 1) * PERIOD, 0)
        account, _ = follow(read(account, Reading(sample.until, 0, 0)), sample, 0.6)
    begun = sample.until + PERIOD
    busy = PERIOD // 50  # at the very end; more is charged, and most of that done, when next seen
    account = read(account, Reading(begun + 34 * MS, 45 * MS, 24 * MS, launches=900))

    account, wrong = follow(account, Sample(sample.until, begun, busy), 0.6)

    assert (account.measured, wrong) == (busy, 0)


@pytest.mark.parametrize("share", [103, 104, 106, 125])
def test_what_rounding_alone_can_explain_is_no_evidence(share: int) -> None:
    container = Container(share * 100_000, 100 * MS, 100 * MS, lambda _: 1.0)

    container.run(20, promise=share / 1000)

    assert container.account.scale == 1
    assert container.corrected == 0


def test_a_function_charged_by_its_shorter_launches_is_found_out() -> None:
    container = Container(5 * MS, 5 * MS, 10 * MS, lambda _: 0.2)

    container.run(10, promise=0.3)

    assert container.account.scale == pytest.approx(SCALE_MOST, rel=0.3)
    assert container.charged == pytest.approx(container.worked, rel=0.03)


def test_the_scale_is_bounded() -> None:
    container = Container(150 * MS, 300 * MS, 500 * MS, lambda _: 100.0)

    container.run(20, promise=0.3)

    assert container.account.scale == SCALE_LEAST


def begun(charged: int = 1000 * MS, retired: int = 1000 * MS) -> Account:
    account = read(Account(), Reading(0, charged, retired))
    account, _ = follow(account, Sample(0, PERIOD, 0), 0.5)
    return account


def test_what_a_killed_process_had_in_flight_is_forgotten_after_a_while() -> None:
    account = begun(charged=1000 * MS, retired=700 * MS)
    for tick in range(1, IDLE_NS // TICK + 2):
        account = read(account, Reading(tick * TICK, 1000 * MS, 700 * MS))
    account, wrong = follow(account, Sample(IDLE_NS, IDLE_NS + PERIOD, 0), 0.5)
    assert wrong == 0
    assert account.lost == 300 * MS

    account = read(account, Reading(4 * IDLE_NS, 1400 * MS, 1100 * MS))
    account, wrong = follow(account, Sample(4 * IDLE_NS, 4 * IDLE_NS + PERIOD, 0), 0.5)

    assert wrong == pytest.approx(-400 * MS, abs=60 * MS)


def test_nothing_is_concluded_before_there_is_a_reading() -> None:
    assert follow(Account(), Sample(0, PERIOD, 100 * MS), 0.5) == (Account(), 0)


def test_what_is_in_flight_may_be_measured_or_not() -> None:
    account = read(begun(), Reading(TICK, 1100 * MS, 1000 * MS))

    for busy in (0, 50 * MS, 50 * MS):
        account, wrong = follow(account, Sample(PERIOD, 2 * PERIOD, busy), 0.5)
        assert wrong == 0


def test_a_first_launch_that_was_charged_next_to_nothing_counts_in_full() -> None:
    account = read(Account(), Reading(TICK, 0, 0))
    account = read(account, Reading(2 * TICK, MS, 0))

    account, wrong = follow(account, Sample(0, PERIOD, 150 * MS), 0.5)

    assert account.measured == 150 * MS
    assert wrong == pytest.approx(149 * MS, abs=5 * MS)


def test_while_one_long_launch_is_in_flight_what_was_measured_of_it_stands() -> None:
    account = read(Account(), Reading(0, 0, 0, 0))
    for tick in range(1, 41):
        account = read(account, Reading(tick * TICK, 1000 * MS, 0, 1))

    for begin in range(0, 24 * PERIOD, PERIOD):
        account, wrong = follow(account, Sample(begin, begin + PERIOD, PERIOD // 20), 0.5)
        assert wrong == 0

    assert account.measured == pytest.approx(24 * (PERIOD // 20), abs=1)


def test_what_nobody_was_seen_to_take_was_taken_by_those_who_have_left() -> None:
    account = read(begun(), Reading(3 * TICK, 1300 * MS, 1300 * MS, launches=300))
    unseen = Sample(PERIOD, 2 * PERIOD, 0, whole=False)
    seen = replace(unseen, whole=True)

    assert follow(account, seen, 0.5)[1] < -50 * MS
    account, wrong = follow(account, unseen, 0.5)

    assert wrong == 0
    assert follow(account, replace(unseen, whole=True), 0.5)[1] == 0


def test_who_left_has_not_paid_for_those_who_stay() -> None:
    account = read(begun(), Reading(4 * TICK, 1010 * MS, 1010 * MS))
    sample = Sample(PERIOD, 2 * PERIOD, 150 * MS, whole=False)

    assert follow(account, sample, 0.5)[1] > 50 * MS


def half_measured() -> Account:
    """A launch of unknown cost is under way, and 400 ms of it have been measured; others were there
    long before."""
    account = replace(read(Account(), Reading(0, 0, 0)), began=-5000 * MS)
    for at in (100, 200, 300, 400, 500):
        account = read(account, Reading(at * MS, 1, 0, launches=1, unpaid=True))
    account, wrong = follow(account, Sample(0, 450 * MS, 400 * MS), 0.1)
    assert wrong > 390 * MS
    return read(account, Reading(550 * MS, 1 + wrong, wrong, launches=1, unpaid=True))


def test_what_was_charged_before_a_launch_was_paid_for_is_given_back_once_it_is() -> None:
    account, none = settle(half_measured())
    advanced = account.advanced
    paid = Reading(600 * MS, advanced + 500 * MS, advanced + 500 * MS, launches=1)
    account, back = settle(read(account, paid))

    assert (none, back) == (0, -advanced)
    assert advanced > 390 * MS
    given = Reading(700 * MS, 500 * MS, 500 * MS, launches=1)
    assert settle(read(account, given))[1] == 0


def test_no_more_is_given_back_than_was_paid_for() -> None:
    account = half_measured()
    paid = Reading(600 * MS, account.advanced + 30 * MS, account.advanced + 30 * MS, launches=1)

    assert settle(read(account, paid))[1] == -30 * MS + 1


def test_what_samples_gave_back_is_not_given_back_twice() -> None:
    account = half_measured()
    advanced = account.advanced
    for at in (600, 700, 800):
        paid = Reading(at * MS, advanced + 500 * MS, advanced + 500 * MS, launches=1)
        account = read(account, paid)
    account, wrong = follow(account, Sample(450 * MS, 790 * MS, 100 * MS), 0.1)
    assert wrong < 0
    now = advanced + 500 * MS + wrong
    _, back = settle(read(account, Reading(900 * MS, now, now, launches=1)))

    assert back == -(advanced + wrong)


def test_from_a_launch_that_is_not_paid_for_nothing_is_learnt() -> None:
    assert half_measured().scale == 1.0


@pytest.mark.parametrize("busy", [0, PERIOD // 20, PERIOD])
def test_what_is_forgotten_of_a_meter_at_rest_is_not_missed(busy: int) -> None:
    account = begun()
    for tick in range(2, 50):
        moved = min(tick, 12)
        charged = 1000 * MS + moved * 40 * MS
        account = read(account, Reading(tick * TICK, charged, charged - 10 * MS, moved))
    resting = rest(account)

    for begin in range(0, 28 * PERIOD, PERIOD):
        sample = Sample(begin, begin + PERIOD, busy)
        account, wrong = follow(account, sample, 0.5)
        resting, same = follow(resting, sample, 0.5)
        assert (replace(resting, readings=()), same) == (replace(account, readings=()), wrong)

    assert len(account.readings) == 1 + 48
    assert [one.at // TICK for one in resting.readings] == [0, *range(2, 13), 49]


def test_a_meter_that_never_moved_is_known_by_two_readings() -> None:
    account = Account()
    for tick in range(40):
        account = rest(read(account, Reading(tick * TICK, 0, 0)))

    assert [one.at for one in account.readings] == [0, 39 * TICK]
