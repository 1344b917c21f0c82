"""A driver's samples as periods: what is known of them, and what is not."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.compute.periods import SAME_NS, Period, Periods
from gpumanager.compute.values import SECOND
from gpumanager.gpu.samples import GpuUtilization, ProcessSample

LENGTH = SECOND // 6
POLL = SECOND * 15 // 100


class Driver:
    """Samples at the end of each of its periods; asked again and again."""

    def __init__(self, length: int = LENGTH) -> None:
        self.length, self.periods = length, Periods()
        self.percents: dict[int, dict[int, int]] = {}
        self.asked = self.told = 0

    def use(self, number: int, **percents: int) -> None:
        """In the period of this number, by processes called p1, p2 and so on."""
        self.percents[number] = {int(name[1:]): percent for name, percent in percents.items()}

    def ask(self, after: int = POLL) -> list[Period]:
        self.asked += after
        samples = tuple(
            ProcessSample(pid, end, percent)
            for number, percents in self.percents.items()
            for end in [(number + 1) * self.length]
            if self.told < end <= self.asked
            for pid, percent in percents.items()
        )
        self.told = max((sample.ended_ns for sample in samples), default=self.told)
        return self.periods.enter(GpuUtilization(self.asked, samples))


def asked_until(driver: Driver, seconds: float) -> list[Period]:
    found: list[Period] = []
    while driver.asked < seconds * SECOND:
        found += driver.ask()
    return found


def test_once_their_length_is_known_periods_follow_each_other_without_gaps() -> None:
    driver = Driver()
    for number in range(12):
        driver.use(number, p1=30, p2=60)

    found = asked_until(driver, 2)

    assert len(found) == 12
    assert found[0] == Period(0, LENGTH, LENGTH, {1: 30, 2: 60})
    assert found[-1] == Period(11 * LENGTH, 12 * LENGTH, LENGTH, {1: 30, 2: 60})
    assert all(one.end == two.begin for one, two in pairwise(found))


def test_of_a_process_that_is_not_listed_beside_another_it_is_known_that_it_was_idle() -> None:
    driver = Driver()
    for number in range(12):
        driver.use(number, p1=30)
    driver.use(11, p2=7)

    assert asked_until(driver, 2.1)[-1].percents == {2: 7}


def test_a_time_in_which_nobody_was_listed_was_idle_though_we_looked() -> None:
    driver = Driver()
    for number in (*range(6), 9):
        driver.use(number, p1=50)

    assert asked_until(driver, 2)[-1] == Period(6 * LENGTH, 10 * LENGTH, LENGTH, {1: 50})


def test_a_time_in_which_we_did_not_look_is_not_taken_for_idle() -> None:
    driver = Driver()
    for number in (*range(6), 9, 10):
        driver.use(number, p1=50)
    asked_until(driver, 1.2)

    assert driver.ask(SECOND // 2) == []
    assert driver.ask() == [Period(10 * LENGTH, 11 * LENGTH, LENGTH, {1: 50})]


def test_a_long_time_in_which_nobody_was_listed_was_idle_too() -> None:
    driver = Driver()
    for number in (*range(6), 30):
        driver.use(number, p1=50)

    assert asked_until(driver, 6)[-1] == Period(6 * LENGTH, 31 * LENGTH, LENGTH, {1: 50})


def test_several_periods_in_one_answer_are_told_apart() -> None:
    driver = Driver(SECOND // 20)
    for number in range(40):
        driver.use(number, p1=number)

    found = asked_until(driver, 2)

    assert [period.percents[1] for period in found] == list(range(40))


def test_stamps_of_one_period_may_differ_a_little_and_wander() -> None:
    periods = Periods()
    for number in range(6):
        end = number * LENGTH
        samples = (ProcessSample(1, end, 10), ProcessSample(2, end + SAME_NS // 2, 20))
        again = ProcessSample(1, end + 3, 10)
        found = periods.enter(GpuUtilization(end + 10, samples))
        assert periods.enter(GpuUtilization(end + 20, (again,))) == []

    assert found == [Period(end - LENGTH, end, LENGTH, {1: 10, 2: 20})]


@pytest.mark.parametrize("samples", [(), None])
def test_no_samples_tell_nothing(samples: tuple[()] | None) -> None:
    assert [Periods().enter(GpuUtilization(tick * POLL, samples)) for tick in range(20)] == [
        []
    ] * 20


@given(st.lists(st.tuples(st.integers(1, SECOND), st.integers(0, 100)), max_size=40))
def test_periods_never_overlap_and_hold_their_length(steps: list[tuple[int, int]]) -> None:
    periods, end, found = Periods(), 0, list[Period]()
    for gap, percent in steps:
        end += gap
        found += periods.enter(GpuUtilization(end, (ProcessSample(1, end, percent),)))

    assert all(0 < period.length <= period.end - period.begin for period in found)
    assert all(one.end <= two.begin for one, two in pairwise(found))
