"""What a container is taken to want, from what its meter said at the last looks."""

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.compute.demand import Demand
from gpumanager.compute.history import Rates, UsageHistory, UsageMark
from gpumanager.compute.values import SECOND, Reading
from gpumanager.gpu.values import GpuUUID

TICK = SECOND // 10
MS = SECOND // 1000


@dataclass
class Container:
    """A meter that is looked at ten times a second."""

    guarantee: float = 0.5
    ceiling: float = 0.5
    now: int = 0
    charged: int = 0
    waits: int = 0
    paid_until: int = 0
    awaited: int = 0
    history: UsageHistory = field(default_factory=UsageHistory)
    demand: Demand = field(default_factory=Demand)

    def tick(self, charged: int = 0, *, waits: int = 0, count: int = 1) -> float:
        """So many looks, before each of which it was charged and waited. What it wants then."""
        for _ in range(count):
            self.now += TICK
            self.charged += charged
            self.waits += waits
            self.history.enter(UsageMark(self.now, self.charged, self.waits, self.awaited))
            want = self.demand.update(self.now, self.reading(), self.history)
        return want

    def reading(self) -> Reading:
        return Reading(
            holder=("a", 0),
            gpu=GpuUUID("a0"),
            guarantee=self.guarantee,
            ceiling=self.ceiling,
            pids=frozenset(),
            paid_until=self.paid_until,
            charged_ns=self.charged,
            retired_ns=0,
            waits=self.waits,
        )


def test_who_never_launched_wants_nothing() -> None:
    assert Container().tick(count=20) == 0


def test_what_was_charged_before_the_first_look_says_nothing() -> None:
    container = Container(charged=1000 * SECOND, waits=77)

    assert container.tick(count=2) == 0


def test_who_was_made_to_wait_wants_all_it_may_have_at_the_next_look() -> None:
    container = Container(ceiling=0.8)
    container.tick()

    assert container.tick(1, waits=1) == 0.8


def test_who_begins_is_believed_at_the_next_look() -> None:
    container = Container()
    container.tick(count=10)

    assert container.tick(10 * MS) == 0.5


def test_who_works_steadily_again_has_a_moment_with_all_it_may_have() -> None:
    container = Container()
    container.tick(count=10)

    wants = [container.tick(MS) for _ in range(8)]

    assert wants[1:3] == [0.5, 0.5]
    assert wants[4:] == pytest.approx([0.031] * 4)
    assert container.tick(count=3) == 0
    assert [container.tick(MS) for _ in range(3)][-1] == 0.5


def test_who_goes_on_working_has_another_moment_ever_more_rarely() -> None:
    container = Container()
    container.tick(count=10)

    wants = [container.tick(MS) for _ in range(400)]

    begins = [look for look in range(1, 400) if wants[look - 1] < wants[look] == 0.5]
    pauses = [later - look for look, later in pairwise(begins)]
    assert pauses[:5] == [12, 22, 42, 82, 162]
    assert sum(want == 0.5 for want in wants) < 2 * 7 + 3


def test_a_launch_now_and_then_is_no_steady_work() -> None:
    container = Container()
    container.tick(count=10)

    wants = [container.tick(MS * (look % 2)) for look in range(40)]

    assert max(wants) < 0.04


def test_who_uses_a_part_and_never_waits_wants_a_little_more_than_that() -> None:
    container = Container()
    container.tick(count=2)

    assert container.tick(20 * MS, count=20) == pytest.approx(0.24)


def test_who_suddenly_uses_more_than_was_kept_for_it_wants_all_at_the_next_look() -> None:
    container = Container()
    container.tick(count=2)
    container.tick(10 * MS, count=20)

    assert container.tick(30 * MS) == 0.5


def test_who_stops_wants_nothing_after_less_than_half_a_second() -> None:
    container = Container()
    container.tick(count=2)
    container.tick(50 * MS, waits=3, count=20)

    assert container.tick() == 0.5
    assert container.tick(count=3) == 0


def test_who_waits_for_what_its_last_launch_has_cost_still_wants_more() -> None:
    container = Container(guarantee=0.1, ceiling=1.0)
    container.tick(count=2)
    container.paid_until = container.now + 2 * SECOND
    container.tick(200 * MS, waits=1)

    assert container.tick(count=17) == 1.0
    assert container.tick(count=3) == 0


def test_a_clock_far_ahead_is_believed_for_three_seconds() -> None:
    container = Container()
    container.tick(count=2)
    container.paid_until = 2**64 - 1
    container.tick(1, waits=1)

    assert container.tick(count=29) == 0.5
    assert container.tick(count=2) == 0


def test_a_meter_that_began_anew_is_no_wait() -> None:
    container = Container(waits=5, charged=SECOND)
    container.tick(count=3)
    container.waits = container.charged = 0

    assert container.tick() == 0


@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 3)), max_size=30))
def test_a_want_lies_between_nothing_and_the_ceiling(steps: list[tuple[int, int]]) -> None:
    container = Container(guarantee=0.3, ceiling=0.7)

    wants = [container.tick(charged, waits=waits) for charged, waits in steps]

    assert all(0 <= want <= 0.7 for want in wants)


def test_a_share_is_of_the_time_asked_for_even_between_two_looks() -> None:
    history = UsageHistory()
    for tick in range(11):
        history.enter(UsageMark(tick * TICK, tick * 20 * MS, 0))
    history.enter(UsageMark(11 * TICK, 10 * 20 * MS + 100 * MS, 0))

    assert history.newest == pytest.approx(1.0)
    assert history.share(TICK // 2) == pytest.approx(1.0)
    assert history.share(2 * TICK) == pytest.approx(0.6)
    assert history.share(3 * TICK + TICK // 2) == pytest.approx((100 + 50) / 350)


def test_a_moment_is_no_share() -> None:
    history = UsageHistory()
    for tick in range(11):
        history.enter(UsageMark(tick * TICK, tick * 20 * MS, 0))
    history.enter(UsageMark(10 * TICK + TICK // 4, 10 * 20 * MS + 20 * MS, 0))

    assert history.newest == pytest.approx((0.75 * 20 + 20) / 100)


@pytest.mark.parametrize(
    ("since", "until", "mean"),
    [(0, 10, 0.9), (12, 18, 0.9), (18, 26, 0.5), (24, 28, 0.1), (30, 90, 0.5), (25, 35, 0.3)],
)
def test_a_mean_rate_is_of_the_time_asked_for(since: int, until: int, mean: float) -> None:
    rates = Rates()
    for time, rate in ((10, 0.9), (14, 0.9), (22, 0.1), (30, 0.5)):
        rates.enter(time, rate)

    assert rates.mean(since, until) == pytest.approx(mean)


def test_who_was_granted_nothing_yet_has_no_rate() -> None:
    assert Rates().mean(0, 10) == 0


def test_a_correction_downwards_is_no_use() -> None:
    history = UsageHistory()
    history.enter(UsageMark(0, SECOND, 0))
    history.enter(UsageMark(TICK, 0, 0))

    assert history.share(TICK) == 0


@pytest.mark.parametrize(("part", "wanted"), [(0.95, 0.9), (0.8, 0.075)])
def test_who_waits_for_the_gpu_nearly_all_the_time_wants_all_however_little_it_got(
    part: float, wanted: float
) -> None:
    container = Container(guarantee=0.6, ceiling=0.9)
    container.tick(5 * MS, count=8)

    for _ in range(4):
        container.awaited += round(part * TICK)
        want = container.tick(5 * MS)

    assert want == pytest.approx(wanted)
