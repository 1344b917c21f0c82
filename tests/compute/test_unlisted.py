"""GPU time that nobody who lives had, and who pays for it."""

import pytest

from gpumanager.compute.unlisted import CREDIT_NS, DOUBT, LEAST_NS, Leavers, Unlisted
from gpumanager.compute.values import SECOND
from gpumanager.gpu.samples import GpuUtilization, ProcessSample

TICK = SECOND // 10
PERIOD = SECOND // 6


def answer(tick: int, busy: int | None, *samples: ProcessSample) -> GpuUtilization:
    return GpuUtilization(tick * TICK, samples, busy)


def test_what_no_living_process_had_is_unlisted() -> None:
    unlisted = Unlisted()
    unlisted.enter(answer(1, 90, ProcessSample(7, TICK, 30)), PERIOD)

    assert unlisted.enter(answer(2, 90), PERIOD) == (TICK, TICK * 60 // 100)
    assert unlisted.percent([7, 8]) == 30


def test_who_is_not_listed_in_the_newest_period_had_nothing_of_it() -> None:
    unlisted = Unlisted()
    unlisted.enter(answer(1, 50, ProcessSample(7, TICK, 50)), PERIOD)

    found = unlisted.enter(answer(3, 50, ProcessSample(8, 3 * TICK, 20)), PERIOD)

    assert found == (2 * TICK, 2 * TICK * 30 // 100)
    assert unlisted.percent([7]) == 0


def test_a_period_in_which_nobody_is_listed_is_not_the_one_before() -> None:
    unlisted = Unlisted()
    unlisted.enter(answer(1, 50, ProcessSample(7, TICK, 50)), PERIOD)
    assert unlisted.enter(answer(2, 50), PERIOD) == (TICK, 0)
    assert unlisted.enter(answer(3, 50), PERIOD) == (TICK, TICK // 2)


@pytest.mark.parametrize(
    "told", [GpuUtilization(2 * TICK, None, 90), GpuUtilization(2 * TICK, (), None)]
)
def test_a_driver_that_does_not_tell_both_tells_nothing(told: GpuUtilization) -> None:
    unlisted = Unlisted()
    unlisted.enter(answer(1, 90), PERIOD)

    assert unlisted.enter(told, PERIOD) == (0, 0)


def test_rounding_is_not_charged() -> None:
    unlisted = Unlisted()
    unlisted.enter(answer(1, 50, ProcessSample(7, TICK, 51)), PERIOD)
    assert unlisted.enter(answer(2, 50), PERIOD) == (TICK, 0)

    leavers = Leavers()
    assert not any(leavers.enter(TICK, round(DOUBT * TICK), 0) for _ in range(1000))


def test_what_was_taken_and_not_paid_is_charged_but_for_the_doubt() -> None:
    leavers = Leavers()

    charged = sum(leavers.enter(TICK, TICK // 2, TICK // 5) for _ in range(100))

    assert charged == pytest.approx(100 * TICK * (0.3 - DOUBT), abs=LEAST_NS)


def test_what_was_paid_before_it_is_seen_used_is_not_charged_again() -> None:
    leavers = Leavers()

    paid_first = [leavers.enter(TICK, 0, TICK), leavers.enter(TICK, TICK, 0)]

    assert paid_first == [0, 0]


def test_who_paid_for_long_and_took_nothing_has_no_more_than_a_second_in_hand() -> None:
    leavers = Leavers()
    for _ in range(100):
        leavers.enter(TICK, 0, TICK)

    charged = sum(leavers.enter(TICK, TICK, 0) for _ in range(20))

    assert charged >= 20 * TICK * (1 - DOUBT) - CREDIT_NS - LEAST_NS
