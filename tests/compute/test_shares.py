"""Shares of a GPU over time: what is promised holds, and what is charged is put right."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.gpu.usage.samples import GpuUtilization, ProcessSample
from gpumanager.gpu.values import GpuUUID
from tests.compute.model_node import OTHER, TICK, Container, Node, elastic, hard, pid, rates


def test_hard_limits_are_the_promises_whatever_happens() -> None:
    node = Node(hard("a", 30), hard("b", 60, wants=0.0))

    node.tick(20)

    assert rates(node.containers) == [0.3, 0.6]


def test_processes_that_come_and_go_unseen_are_not_refunded() -> None:
    a, b = hard("a", 30), hard("b", 60)
    a.brief = True
    node = Node(a, b)

    node.tick(100)

    assert a.charged <= 30.5 * TICK


def test_where_it_is_not_told_how_busy_a_gpu_was_at_all_nobody_pays_for_it() -> None:
    a = hard("a", 30)
    a.brief = True
    node = Node(a, told=False)

    node.tick(100)

    assert a.charged == pytest.approx(a.took_in_all)


def test_nothing_seen_of_who_was_never_listed_is_not_taken_for_nothing_used() -> None:
    a, b = hard("a", 30), hard("b", 40)
    a.listed_as = pid("x")
    node = Node(b, a)

    node.tick(100)

    assert a.charged == pytest.approx(a.took_in_all)
    assert a.took == pytest.approx(0.30, abs=0.001)


def test_who_is_listed_by_another_number_is_no_stranger_besides() -> None:
    a, b = hard("a", 30), hard("b", 40)
    a.listed_as = pid("x")
    node = Node(b, a)

    node.tick(10)

    assert (a.others, b.others) == pytest.approx((0.40, 0.30), abs=0.01)


def test_who_left_does_not_pay_for_who_was_never_listed() -> None:
    a, b = hard("a", 50), hard("b", 30)
    a.untold = b.brief = True
    node = Node(b, a, hard("c", 10))

    node.tick(100)

    assert b.charged == pytest.approx(b.took_in_all, rel=0.02)


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
    assert a.neighbours == 2  # b might work
    node.tick(280)  # what strangers take is a mean over some seconds

    assert a.others == pytest.approx(0.3, abs=0.01)
    assert a.rate == pytest.approx(0.7, abs=0.01)

    node.strangers = {}
    node.tick(300)
    assert (a.others, a.neighbours, a.rate) == (0.0, 0, 1.0)


def test_who_rests_is_no_neighbour() -> None:
    a, b = hard("a", 30), hard("b", 30)
    node = Node(a, b)
    node.tick(10)
    before = a.neighbours

    b.wants = 0.0
    node.tick(60)

    assert (before, a.neighbours, b.neighbours) == (1, 0, 1)


def test_a_container_without_limit_counts_among_the_others_and_is_granted_nothing() -> None:
    a, whole = hard("a", 30), Container("w", 100, 100, wants=0.5)
    whole.rate = 1.0
    node = Node(whole, a)

    node.tick(300)

    assert a.others == pytest.approx(0.5, abs=0.01)
    assert whole.reading().holder not in node.shares.tick(
        node.now + TICK, [whole.reading(), a.reading()], {}
    )


def test_gpus_do_not_mix() -> None:
    a, b = elastic("a", 50), elastic("b", 50)
    b.gpu = OTHER

    Node(a, b).tick(20)

    assert rates((a, b)) == [1.0, 1.0]
    assert (a.others, b.others) == (0.0, 0.0)


def test_a_container_that_is_charged_rightly_is_left_alone() -> None:
    a = hard("a", 30)

    Node(a, hard("b", 60)).tick(100)

    assert (a.debt, a.rate) == (0.0, 0.3)


class OneWinner(Node):
    """Each sample names the container that had the most since it was named last."""

    def __init__(self, *containers: Container) -> None:
        super().__init__(*containers)
        self.had: dict[int, float] = {}

    def _answer(self, gpu: GpuUUID) -> GpuUtilization:
        answer = super()._answer(gpu)
        for sample in answer.samples or ():
            self.had[sample.pid] = self.had.get(sample.pid, 0.0) + sample.percent
        total = sum(sample.percent for sample in answer.samples or ())
        if total == 0:
            return GpuUtilization(self.now, ())
        winner = max(self.had, key=lambda pid: self.had[pid])
        self.had[winner] -= total
        return GpuUtilization(
            self.now, (ProcessSample(winner, self.now, min(100, total)),), min(100, total)
        )


def test_samples_that_name_one_process_correct_nothing() -> None:
    a, b = hard("a", 30), hard("b", 70)
    node = OneWinner(a, b)

    node.tick(300)

    assert (a.debt, b.debt) == (0.0, 0.0)
    assert (a.took, b.took) == pytest.approx((0.3, 0.7))


def test_time_of_processes_of_no_container_is_not_lent() -> None:
    a = elastic("a", 20)
    node = OneWinner(a, hard("b", 30, wants=0.0))
    node.strangers = {999: 0.3}
    rates = []
    for _ in range(600):
        node.tick()
        rates.append(a.rate)

    assert sum(rates[300:]) / 300 == pytest.approx(0.7, abs=0.02)
    assert min(rates[300:]) > 0.6


def test_a_changed_promise_holds_at_the_next_look() -> None:
    a, b = hard("a", 30), elastic("b", 30)
    node = Node(a, b)
    node.tick(20)

    a.guarantee = a.ceiling = 60
    node.tick()

    assert rates((a, b)) == [0.6, 0.4]


load = st.builds(
    Container,
    name=st.just("x"),
    guarantee=st.integers(1, 40),
    ceiling=st.sampled_from([0, 50, 100]),
    wants=st.sampled_from([0.0, 0.05, 0.3, 1.0]),
    factor=st.sampled_from([1.0, 1.0, 0.7]),
)


@st.composite
def crowds(draw: st.DrawFn) -> list[Container]:
    """Of containers whose promises fit on a GPU together."""
    found = draw(st.lists(load, min_size=1, max_size=5))
    total = sum(container.guarantee for container in found)
    for number, container in enumerate(found):
        container.name = chr(ord("a") + number)
        container.guarantee = max(1, container.guarantee * 100 // max(100, total))
        container.ceiling = max(container.ceiling, container.guarantee)
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
            assert one.guarantee / 100 - 1e-6 <= one.rate <= one.ceiling / 100 + 1e-6
        data.draw(st.sampled_from(crowd)).wants = data.draw(st.sampled_from([0.0, 0.2, 1.0]))
