"""Two programs that wait for the end of each launch: what is lost by it, and who is held back."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.compute.capacity import LEAST_ALTERNATING, Alternation
from gpumanager.compute.capacity import LEAST_ALTERNATING as LEAST_ALTERNATING_YIELD
from gpumanager.compute.fair import Claim, offers
from gpumanager.compute.values import SECOND, Holder, Reading
from tests.compute.model_node import GPU, TICK

SWITCH_NS = 50_000
SHORT_NS, MILLISECOND = 50_000, 1_000_000


@dataclass
class Program:
    """told: the part of its GPU time that it is charged for. awaits: it waits for each launch."""

    name: str
    guarantee: float
    cost: int
    told: float = 1.0
    awaits: bool = True
    launches: int = 0
    share: float = 0.0

    @property
    def holder(self) -> Holder:
        return (self.name, 0)

    @property
    def claim(self) -> Claim:
        return Claim(self.guarantee, self.guarantee, self.guarantee)

    def reading(self, now: int) -> Reading:
        charged = round(self.told * self.launches * self.cost)
        return Reading(
            self.holder,
            GPU,
            self.guarantee,
            self.guarantee,
            frozenset(),
            0,
            charged,
            charged,
            0,
            launches=self.launches,
            awaited_ns=now if self.awaits else 0,
        )


class Pair:
    """Two programs on a GPU, of which each launch of the one that launches less costs two
    switches. The limiter holds honest ones to what they are granted."""

    def __init__(self, small: Program, large: Program, switch_ns: int = SWITCH_NS) -> None:
        self.small, self.large, self.switch_ns = small, large, switch_ns
        self.alternation = Alternation(SWITCH_NS)
        self.now = SECOND

    def run(self, looks: int) -> None:
        for _ in range(looks):
            self.now += TICK
            claims = {one.holder: one.claim for one in (self.small, self.large)}
            usable = self.alternation.yields(claims)
            rates = offers(list(claims.values()), usable=usable)
            lacking = self._launch(*rates)
            readings = [one.reading(self.now) for one in (self.small, self.large)]
            self.alternation.update(self.now, readings, lacking=lacking)

    def _launch(self, small: float, large: float) -> bool:
        """Whether the one with the larger guarantee had less than it was granted."""
        one, other = self.small, self.large
        in_turn = TICK / (one.cost + other.cost + 2 * self.switch_ns)
        few = min(small * TICK / (one.cost * one.told), in_turn)
        left = TICK - few * (one.cost + 2 * self.switch_ns)
        many = min(large * TICK / other.cost, left / other.cost)
        for program, count in ((one, few), (other, many)):
            program.launches += round(count)
            program.share = round(count) * program.cost / TICK
        return many < large * TICK / other.cost


def test_the_one_with_the_smaller_promise_is_held_back_until_the_ratio_is_kept() -> None:
    pair = Pair(Program("a", 0.3, SHORT_NS), Program("b", 0.6, SHORT_NS))

    pair.run(1)
    assert (pair.small.share, pair.large.share) == (0.25, 0.25)
    pair.run(2)

    assert (pair.small.share, pair.large.share) == pytest.approx((0.2, 0.4), abs=0.002)


def test_a_gpu_that_loses_nothing_by_switches_gives_all_it_promised() -> None:
    pair = Pair(Program("a", 0.3, SHORT_NS), Program("b", 0.6, SHORT_NS), switch_ns=0)

    pair.run(5)

    assert (pair.small.share, pair.large.share) == pytest.approx((0.3, 0.6), abs=0.002)


def test_a_loss_that_is_gone_is_forgotten() -> None:
    pair = Pair(Program("a", 0.3, SHORT_NS), Program("b", 0.6, SHORT_NS))
    pair.run(5)
    pair.switch_ns = 0
    before = pair.alternation.lost

    pair.run(300)

    assert pair.alternation.lost < before / 2
    assert pair.small.share + pair.large.share > 0.7


@given(st.floats(0.0, 1.0))
def test_a_container_that_is_charged_too_little_lowers_no_neighbour_with_long_launches(
    told: float,
) -> None:
    pair = Pair(Program("a", 0.3, SHORT_NS, told=max(told, 1e-6)), Program("b", 0.6, MILLISECOND))

    pair.run(5)

    claims = {one.holder: one.claim for one in (pair.small, pair.large)}
    assert pair.alternation.yields(claims) > LEAST_ALTERNATING


def test_nothing_is_believed_lost_beside_a_program_that_does_not_wait_for_each_launch() -> None:
    liar = Program("a", 0.3, SHORT_NS, told=0.01)
    pair = Pair(liar, Program("b", 0.6, SHORT_NS, awaits=False))

    pair.run(5)

    claims = {one.holder: one.claim for one in (pair.small, pair.large)}
    assert pair.alternation.yields(claims) == 1.0


@given(st.floats(1e-3, 1.0))
def test_no_more_is_believed_lost_than_launches_of_the_neighbour_can_explain(told: float) -> None:
    pair = Pair(Program("a", 0.3, SHORT_NS, told=told), Program("b", 0.6, SHORT_NS))

    pair.run(5)

    claims = {one.holder: one.claim for one in (pair.small, pair.large)}
    explained = 2 * SWITCH_NS * 0.6 / SHORT_NS
    assert pair.alternation.yields(claims) >= 0.9 / (0.9 + explained)


def test_forged_meters_do_not_take_all_that_a_neighbour_is_promised() -> None:
    """Two containers say that they launch ten thousand times a look for one nanosecond each."""
    forgers = [Program("a", 0.3, 1), Program("b", 0.3, 1)]
    honest = Program("c", 0.3, SHORT_NS)
    everybody = [*forgers, honest]
    alternation = Alternation(SWITCH_NS)
    for look in range(1, 50):
        for one in forgers:
            one.launches += 10_000
        honest.launches += 400
        now = SECOND + look * TICK
        readings = [one.reading(now) for one in everybody]
        alternation.update(now, readings, lacking=True)

    assert (
        alternation.yields({one.holder: one.claim for one in everybody}) == LEAST_ALTERNATING_YIELD
    )
