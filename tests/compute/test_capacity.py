"""What a GPU yields to all containers together: measured while one of them is starved."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.compute.capacity import LEAST, LOAN_STEP, SPARE, Capacity
from gpumanager.compute.fair import Claim, offers
from gpumanager.compute.history import STARVED_NS, UsageHistory, UsageMark
from gpumanager.compute.values import MILLION, SECOND, Reading
from tests.compute.model_node import GPU, TICK

CLOSE = SPARE + 1e-6


class SwitchingGpu:
    """A GPU that loses a part of its time, containers that want all of their promises, and the
    capacity that follows. Whoever has the largest guarantee gets what the others leave."""

    def __init__(self, *promises: int) -> None:
        self.promises = [guarantee / 100 for guarantee in promises]
        self.charged = [0.0 for _ in promises]
        self.capacity = Capacity()
        self.now = SECOND
        self.got: list[float] = []

    def run(self, seconds: float, loss: float, *, idle: int = 0) -> None:
        """idle: of the containers, so many of the last want nothing."""
        for _ in range(round(seconds * SECOND / TICK)):
            self.now += TICK
            working = self.promises[: len(self.promises) - idle]
            claims = [Claim(guarantee, guarantee, guarantee) for guarantee in working]
            grants = offers(claims, usable=self.capacity.part)
            self.got, left = [], 1 - loss
            for grant in grants:
                self.got.append(min(grant, left))
                left -= self.got[-1]
            for place, got in enumerate(self.got):
                self.charged[place] += got * TICK
            starved = [(str(at), 0) for at, got in enumerate(self.got) if got < grants[at]]
            self.capacity.update(self.now, self._readings(), starved)

    def _readings(self) -> list[Reading]:
        return [
            Reading(
                (str(at), 0),
                GPU,
                guarantee,
                guarantee,
                frozenset(),
                0,
                round(charged),
                round(charged),
                0,
            )
            for at, (guarantee, charged) in enumerate(zip(self.promises, self.charged, strict=True))
        ]


@st.composite
def promises(draw: st.DrawFn) -> list[int]:
    """Of two containers or more, which sum up to a GPU, the largest last."""
    first = draw(st.lists(st.integers(5, 30), min_size=1, max_size=3))
    last = 100 - sum(first)
    return sorted([*first, last]) if last > 0 else [30, 70]


@given(promises(), st.floats(0.0, 0.14))
def test_the_loss_of_a_gpu_falls_on_all_in_proportion_to_promises(
    shares: list[int], loss: float
) -> None:
    gpu = SwitchingGpu(*shares)

    gpu.run(3, loss)

    for share, got in zip(shares, gpu.got, strict=True):
        assert got == pytest.approx(share / 100 * (1 - loss), abs=CLOSE)


@given(st.floats(0.0, 0.1))
def test_promises_that_fit_beside_the_loss_are_kept(loss: float) -> None:
    gpu = SwitchingGpu(30, 60)

    gpu.run(3, loss)

    assert gpu.got == pytest.approx([0.30, 0.60])


def test_the_loss_is_measured_within_a_second() -> None:
    gpu = SwitchingGpu(10, 20, 30, 40)

    gpu.run(1, 0.05)

    assert gpu.capacity.part == pytest.approx(0.95, abs=CLOSE)


def test_less_loss_is_seen_at_once_by_who_is_starved() -> None:
    gpu = SwitchingGpu(30, 70)
    gpu.run(5, 0.13)

    gpu.run(4, 0.04)

    assert gpu.got == pytest.approx([0.30 * 0.96, 0.70 * 0.96], abs=CLOSE)


def test_who_is_left_alone_has_its_whole_promise_at_once() -> None:
    gpu = SwitchingGpu(30, 70)
    gpu.run(5, 0.13)

    gpu.run(0.1, 0.0, idle=1)

    assert gpu.got == pytest.approx([0.30])


def test_where_nobody_is_starved_the_capacity_grows_until_it_is_whole() -> None:
    gpu = SwitchingGpu(30, 70)
    gpu.run(5, 0.05)
    before = gpu.capacity.part

    gpu.run(0.5, 0.0, idle=1)
    then = gpu.capacity.part
    gpu.run(2, 0.0, idle=1)

    assert before < then < gpu.capacity.part == 1.0


def test_what_no_meter_shows_is_not_taken_for_lost() -> None:
    gpu = SwitchingGpu(30, 70)

    gpu.run(3, 0.9)

    assert gpu.capacity.part == LEAST


def test_a_container_that_comes_begins_the_measuring_anew() -> None:
    gpu = SwitchingGpu(30, 70)
    gpu.run(5, 0.05)
    capacity, before = gpu.capacity, gpu.capacity.part
    extra = Reading(("x", 0), GPU, 0.1, 0.1, frozenset(), 0, 50 * SECOND, 50 * SECOND, 0)
    readings = [*gpu._readings(), extra]

    capacity.update(gpu.now + TICK, readings, [("1", 0)])

    assert capacity.part == before


class Launcher:
    """One container's marks, ten a second."""

    def __init__(self) -> None:
        self.history, self.mark = UsageHistory(), UsageMark(SECOND, 0, 0)

    def look(
        self,
        times: int = 1,
        *,
        used: float,
        waited: int = 0,
        awaited: float = 0,
        behind_ms: int = 0,
        going: bool = True,
        long: bool = False,
        ahead: bool = False,
    ) -> bool:
        """It used and awaited these parts of the time; whether it is starved at the last look."""
        for _ in range(times):
            old = self.mark
            self.mark = UsageMark(
                old.time + TICK,
                old.charged + round(used * TICK),
                old.waits + waited,
                old.awaited + round(awaited * TICK),
                behind=behind_ms * MILLION,
                going=going,
                long=long,
                ahead=ahead,
            )
            self.history.enter(self.mark)
        return self.history.starved


LOOKS = STARVED_NS // TICK + 1


def test_who_has_work_on_the_gpu_and_falls_behind_is_starved() -> None:
    assert Launcher().look(2, used=0.6, waited=1, behind_ms=60)


def test_nothing_is_charged_while_a_long_launch_is_there_and_yet_its_container_is_starved() -> None:
    assert Launcher().look(2, used=0.0, behind_ms=60, long=True)
    assert not Launcher().look(2, used=0.0, behind_ms=5, long=True)


def test_who_waits_for_the_end_of_each_launch_all_the_time_is_starved() -> None:
    assert Launcher().look(LOOKS + 1, used=0.6, awaited=1.0, behind_ms=0, going=False)


@pytest.mark.parametrize(
    "habits",
    [
        {"used": 0.6, "waited": 1, "behind_ms": -20},
        {"used": 0.6, "behind_ms": 5},
        {"used": 0.6, "behind_ms": 60, "going": False},
        {"used": 0.0, "behind_ms": 60},
        {"used": 0.6, "awaited": 0.9, "behind_ms": 5},
        {"used": 0.6, "awaited": 1.0, "waited": 1, "behind_ms": -20},
    ],
    ids=[
        "held back by the limiter",
        "uses less than it may",
        "nothing in flight",
        "launches nothing",
        "does something else between two launches",
        "waits for its end and for the limiter",
    ],
)
def test_nobody_else_is_starved(habits: dict[str, float]) -> None:
    assert not Launcher().look(LOOKS + 1, **habits)  # type: ignore[arg-type]


def lacks(**habits: float) -> bool:
    launcher = Launcher()
    launcher.look(LOOKS, **habits)  # type: ignore[arg-type]
    return launcher.history.lacking


def test_who_waits_all_the_time_and_is_not_held_back_lacks_gpu_time() -> None:
    assert lacks(used=0.4, awaited=1.0)
    assert lacks(used=0.4, waited=TICK)


@pytest.mark.parametrize(
    "habits",
    [
        {"used": 0.4, "waited": TICK, "ahead": True},
        {"used": 0.4, "waited": TICK, "going": False},
        {"used": 0.4, "awaited": 0.6},
        {"used": 0.4, "awaited": 0.6, "waited": round(0.4 * TICK), "ahead": True},
    ],
    ids=["held back", "nothing in flight", "does something else", "waits for both, held back"],
)
def test_who_is_held_back_or_wants_no_more_lacks_nothing(habits: dict[str, float]) -> None:
    assert not lacks(**habits)


def looks(capacity: Capacity, count: int, **state: bool) -> None:
    readings = SwitchingGpu(30, 60)._readings()
    flags = {"lacking": False, "short": False, "alone": False} | state
    for _ in range(count):
        now = capacity.at + TICK
        capacity.lend(TICK, **flags)
        capacity.update(now, readings, [])


def test_what_is_lent_gives_way_before_anything_is_measured() -> None:
    capacity = Capacity(at=SECOND)

    looks(capacity, 3, lacking=True, short=True)

    assert capacity.part == 1.0
    assert capacity.lendable == pytest.approx(1 - 3 * 0.1 * LOAN_STEP)


def test_what_is_lent_grows_again_while_every_promise_is_met() -> None:
    capacity = Capacity(lendable=LEAST, at=SECOND)

    looks(capacity, 100)

    assert capacity.lendable == 1.0


@pytest.mark.parametrize("state", ["lacking", "alone"])
def test_no_more_is_lent_where_somebody_lacks_time_or_nobody_could(state: str) -> None:
    capacity = Capacity(lendable=LEAST, at=SECOND)

    looks(capacity, 100, **{state: True})

    assert capacity.lendable == LEAST
