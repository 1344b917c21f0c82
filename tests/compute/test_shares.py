"""Shares of a GPU over time: containers of a model, looked at ten times a second."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.compute.shares import Shares
from gpumanager.compute.values import MILLION, SECOND, Grant, Holder, Reading
from gpumanager.gpu.samples import Answer, Sample
from gpumanager.gpu.values import GpuUUID

GPU = GpuUUID("a0")
OTHER = GpuUUID("a1")
TICK = SECOND // 10
GLANCE = TICK // 4
PERIODS_PER_TICK = 2


@dataclass
class Container:
    """Wants a share of the GPU, and is held to its rate; what it takes is charged by `factor`."""

    name: str
    promise: int
    ceiling: int
    wants: float = 0.0
    factor: float = 1.0
    gpu: GpuUUID = GPU
    took: float = 0.0
    charged: float = 0.0
    waits: int = 0
    scale: float = 1.0
    debt: float = 0.0
    rate: float = 0.0
    others: float = 0.0
    brief: bool = False
    departed: int = 0

    def run(self, room: float) -> None:
        """One tick, in which the GPU has so much room for it."""
        per_charge = self.factor * self.scale
        allowed = max(0.0, self.rate - self.debt) / per_charge
        self.debt = max(0.0, self.debt - self.rate)
        self.took = min(self.wants, allowed, room)
        self.waits += self.wants > self.took
        self.charged += self.took * per_charge * TICK
        self.departed += self.brief

    def reading(self) -> Reading:
        return Reading(
            holder=(self.name, 0),
            gpu=self.gpu,
            promise=self.promise / 100,
            ceiling=self.ceiling / 100,
            pids=frozenset([] if self.brief else [pid(self.name)]),
            paid_until=0,
            charged_ns=round(self.charged),
            retired_ns=max(1, round(self.charged)),
            waits=self.waits,
            departed=self.departed,
        )

    def apply(self, grant: Grant) -> None:
        self.rate = grant.rate_ppm / MILLION
        self.others = grant.others_ppm / MILLION
        self.scale = grant.cost_ppm / MILLION
        debt_rate = grant.debt_ppm / MILLION or self.rate
        self.debt += grant.debt_ns / TICK * self.rate / debt_rate
        self.charged += grant.debt_ns


def pid(name: str) -> int:
    return ord(name[0])


class Node:
    """The containers, their shares, and a driver that samples every GPU every half tick or so."""

    def __init__(self, *containers: Container, sampled: bool = True) -> None:
        self.containers, self.sampled = containers, sampled
        self.shares = Shares()
        self.strangers: dict[int, float] = {}
        self.now = 0
        for container in containers:
            container.rate = container.promise / 100

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.now += TICK
            room = 1 - sum(self.strangers.values())
            for container in self.containers:
                container.run(room)
                room -= container.took
            self._share()

    def glance(self) -> None:
        self.now += GLANCE
        self._apply(self.shares.glance(self.now, self.readings()))

    def readings(self) -> list[Reading]:
        return [container.reading() for container in self.containers]

    def _share(self) -> None:
        answers = {gpu: self._answer(gpu) for gpu in (GPU, OTHER)} if self.sampled else {}
        self._apply(self.shares.tick(self.now, self.readings(), answers))

    def _apply(self, grants: Mapping[Holder, Grant]) -> None:
        for container in self.containers:
            if (container.name, 0) in grants:
                container.apply(grants[container.name, 0])

    def _answer(self, gpu: GpuUUID) -> Answer:
        here = (one for one in self.containers if one.gpu == gpu and not one.brief)
        busy = {pid(one.name): one.took for one in here}
        busy |= self.strangers if gpu == GPU else {}
        samples = (Sample(who, self.now, round(100 * took)) for who, took in busy.items())
        return Answer(self.now, tuple(sample for sample in samples if sample.percent > 0))


def hard(name: str, promise: int, wants: float = 1.0, factor: float = 1.0) -> Container:
    return Container(name, promise, promise, wants, factor)


def elastic(name: str, promise: int, wants: float = 1.0, ceiling: int = 100) -> Container:
    return Container(name, promise, ceiling, wants)


def rates(containers: Iterable[Container]) -> list[float]:
    return [round(container.rate, 3) for container in containers]


def test_hard_limits_are_the_promises_whatever_happens() -> None:
    node = Node(hard("a", 30), hard("b", 60, wants=0.0))

    node.tick(20)

    assert rates(node.containers) == [0.3, 0.6]


def test_processes_that_come_and_go_unseen_are_not_refunded() -> None:
    a, b = hard("a", 30), hard("b", 60)
    a.brief = True
    node = Node(a, b)

    node.tick(100)

    assert a.scale == 1
    assert a.charged <= 30.5 * TICK


def test_idle_share_goes_to_who_may_burst_within_half_a_second() -> None:
    a, b = hard("a", 50), elastic("b", 50)
    node = Node(a, b)
    node.tick(20)
    assert rates((a, b)) == [0.5, 0.5]

    a.wants = 0.0
    node.tick(4)

    assert b.rate == 1.0


def test_what_was_lent_is_given_back_at_the_next_look() -> None:
    a, b = hard("a", 50, wants=0.0), elastic("b", 50)
    node = Node(b, a)
    node.tick(20)
    assert b.rate == 1.0

    a.wants = 1.0
    b.wants = 0.9  # leaves the GPU a gap
    node.tick()

    assert rates((a, b)) == [0.5, 0.5]


def test_what_was_lent_is_given_back_at_a_glance_before_the_next_look() -> None:
    a, b = hard("a", 50, wants=0.0), elastic("b", 50)
    node = Node(b, a)
    node.tick(20)
    assert node.shares.lenders == {("a", 0)}
    assert not node.shares.stirred(node.readings())

    a.charged += 0.5 * GLANCE
    assert node.shares.stirred(node.readings()) == {GPU}
    node.glance()

    assert rates((a, b)) == [0.5, 0.5]
    assert node.shares.lenders == set()


@pytest.mark.parametrize(
    "containers",
    [
        (hard("a", 30), hard("b", 60, wants=0.0)),
        (elastic("a", 30), elastic("b", 50)),
        (elastic("a", 30, wants=0.2), hard("b", 60, wants=0.0)),
        (elastic("a", 30),),
    ],
    ids=["hard limits", "all want more than that", "no more than the promise is used", "alone"],
)
def test_nothing_is_lent_that_could_be_wanted_back(containers: tuple[Container, ...]) -> None:
    node = Node(*(replace(one) for one in containers))

    node.tick(20)

    assert node.shares.lenders == set()


def test_a_glance_at_one_gpu_leaves_the_others_as_they_are() -> None:
    a, b, c = elastic("a", 30), hard("b", 60, wants=0.0), elastic("c", 50)
    c.gpu = OTHER
    node = Node(a, b, c)
    node.tick(20)

    own = [container.reading() for container in (a, b)]
    assert set(node.shares.glance(node.now + GLANCE, own)) == {("a", 0), ("b", 0)}
    node.tick()
    assert rates((a, b, c)) == [1.0, 0.6, 1.0]


def test_a_short_burst_below_what_is_kept_for_it_wants_no_more_at_a_glance() -> None:
    a, b = hard("a", 50, wants=0.2), elastic("b", 50)
    node = Node(a, b)
    node.tick(20)
    lent = b.rate

    a.charged += 0.2 * 2 * GLANCE
    node.glance()

    assert b.rate == pytest.approx(lent, abs=0.03)


def test_two_that_burst_share_by_their_promises() -> None:
    node = Node(elastic("a", 10), elastic("b", 30), hard("c", 20, wants=0.0))

    node.tick(20)

    assert rates(node.containers) == [0.25, 0.75, 0.2]


def test_who_uses_a_part_of_its_promise_leaves_the_rest() -> None:
    a, b = hard("a", 50, wants=0.2), elastic("b", 50)

    Node(a, b).tick(30)

    assert b.rate == pytest.approx(0.76)


def test_each_is_told_what_the_others_took() -> None:
    a, b = hard("a", 30), hard("b", 60, wants=0.4)
    node = Node(a, b)

    node.tick(10)

    assert a.others == pytest.approx(0.4, abs=0.01)
    assert b.others == pytest.approx(0.3, abs=0.01)


def test_who_has_not_begun_is_told_what_the_others_may_begin_to_take() -> None:
    a, b, c = hard("a", 30, wants=0.0), hard("b", 20, wants=0.0), hard("c", 40, wants=0.5)
    node = Node(a, b, c)

    node.tick(10)
    before = a.others
    a.wants = 1.0
    node.tick(1)

    assert before == pytest.approx(0.6, abs=0.01)
    assert a.others == pytest.approx(0.4, abs=0.01)


def test_who_begins_counts_at_the_next_look_with_all_that_it_takes_now() -> None:
    a, b = hard("a", 30), hard("b", 60, wants=0.0)
    node = Node(a, b)
    node.tick(10)

    b.wants = 1.0
    node.tick(1)

    assert a.others == pytest.approx(0.6, abs=0.01)


def test_processes_of_no_container_count_among_the_others_and_their_time_is_not_lent() -> None:
    a = elastic("a", 20)
    node = Node(a, hard("b", 30, wants=0.0))
    node.strangers = {999: 0.3}

    node.tick(20)

    assert a.others == pytest.approx(0.3)
    assert a.rate == pytest.approx(0.7)

    node.strangers = {}
    node.tick(20)
    assert (a.others, a.rate) == (0.0, 1.0)


def test_a_container_without_limit_counts_among_the_others_and_is_granted_nothing() -> None:
    a, whole = hard("a", 30), Container("w", 100, 100, wants=0.5)
    whole.rate = 1.0
    node = Node(whole, a)

    node.tick(20)

    assert a.others == pytest.approx(0.5)
    assert whole.reading().holder not in node.shares.tick(
        node.now + TICK, [whole.reading(), a.reading()], {}
    )


def test_gpus_do_not_mix() -> None:
    a, b = elastic("a", 50), elastic("b", 50)
    b.gpu = OTHER

    Node(a, b).tick(20)

    assert rates((a, b)) == [1.0, 1.0]
    assert (a.others, b.others) == (0.0, 0.0)


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.25, 2.0])
def test_what_is_charged_wrongly_is_corrected_to_the_share(factor: float) -> None:
    a = hard("a", 30, factor=factor)
    node = Node(a, hard("b", 60))
    node.tick(100)

    taken = []
    for _ in range(50):
        node.tick()
        taken.append(a.took)

    if factor < 1:
        assert a.scale == pytest.approx(1 / factor, rel=0.05)
    assert sum(taken) / len(taken) == pytest.approx(0.3, abs=0.01)


def test_a_correction_is_paid_at_the_rate_at_which_it_was_taken() -> None:
    shares, grants = Shares(), []
    a = elastic("a", 30)
    for tick in range(1, 30):
        answer = Answer(tick * TICK, (Sample(pid("a"), tick * TICK, 50),))
        grants.append(shares.tick(tick * TICK, [a.reading()], {GPU: answer})["a", 0])
        a.charged += 1.0 * TICK  # and half of it is measured
        a.waits += 1
        a.ceiling = 100 if tick < 20 else 40

    back = [grant for grant in grants if grant.debt_ns < 0]
    assert back
    assert all(grant.rate_ppm <= grant.debt_ppm <= MILLION for grant in back)
    assert any(grant.rate_ppm == 400_000 and grant.debt_ppm > 900_000 for grant in back)


def test_a_container_that_is_charged_rightly_is_left_alone() -> None:
    a = hard("a", 30)

    Node(a, hard("b", 60)).tick(100)

    assert (a.scale, a.debt, a.rate) == (1.0, 0.0, 0.3)


def test_without_samples_costs_stand_as_they_are() -> None:
    a = hard("a", 30, factor=0.5)

    Node(a, sampled=False).tick(100)

    assert (a.scale, a.rate) == (1.0, 0.3)


def test_the_costs_of_a_shim_that_does_not_tell_what_has_ended_are_not_scaled() -> None:
    class Silent(Container):
        def reading(self) -> Reading:
            return replace(super().reading(), retired_ns=0)

    a = Silent("a", 30, 30, 1.0, 0.5)

    Node(a).tick(100)

    assert a.scale == 1.0


def test_a_changed_promise_holds_at_the_next_look() -> None:
    a, b = hard("a", 30), elastic("b", 30)
    node = Node(a, b)
    node.tick(20)

    a.promise = a.ceiling = 60
    node.tick()

    assert rates((a, b)) == [0.6, 0.4]


def test_who_leaves_is_forgotten() -> None:
    a, b = hard("a", 50), elastic("b", 50)
    node = Node(a, b)
    node.tick(20)

    node.containers = (b,)
    node.tick()

    assert b.rate == 1.0
    assert b.others == 0.0


load = st.builds(
    Container,
    name=st.just("x"),
    promise=st.integers(1, 40),
    ceiling=st.sampled_from([0, 50, 100]),
    wants=st.sampled_from([0.0, 0.05, 0.3, 1.0]),
    factor=st.sampled_from([1.0, 1.0, 0.7]),
)


@st.composite
def crowds(draw: st.DrawFn) -> list[Container]:
    """Of containers whose promises fit on a GPU together."""
    found = draw(st.lists(load, min_size=1, max_size=5))
    total = sum(container.promise for container in found)
    for number, container in enumerate(found):
        container.name = chr(ord("a") + number)
        container.promise = max(1, container.promise * 100 // max(100, total))
        container.ceiling = max(container.ceiling, container.promise)
    return found


Change = Callable[[Container], None]


@given(crowds(), st.data())
def test_in_any_history_nobody_may_charge_less_than_its_promise(
    crowd: list[Container], data: st.DataObject
) -> None:
    node = Node(*crowd)
    for _ in range(data.draw(st.integers(1, 6))):
        node.tick(data.draw(st.integers(1, 8)))
        for one in crowd:
            assert one.promise / 100 - 1e-6 <= one.rate <= one.ceiling / 100 + 1e-6
        data.draw(st.sampled_from(crowd)).wants = data.draw(st.sampled_from([0.0, 0.2, 1.0]))
