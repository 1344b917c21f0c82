"""Shares of a GPU over time: what is promised holds, and what is charged is put right."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.compute.shares import Shares
from gpumanager.compute.unlisted import DOUBT
from gpumanager.compute.values import MILLION, Reading
from gpumanager.gpu.samples import GpuUtilization, ProcessSample
from tests.compute.model_node import GPU, OTHER, TICK, Container, Node, elastic, hard, pid, rates


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


def test_processes_that_leave_before_they_have_paid_pay_in_the_end() -> None:
    a, b = hard("a", 30, factor=0.01), hard("b", 60)
    a.brief = True
    node = Node(b, a)

    node.tick(300)

    assert a.charged >= a.took_in_all - DOUBT * 300 * TICK
    assert a.took_in_all <= 0.31 * 300 * TICK
    assert b.took_in_all == pytest.approx(0.60 * 300 * TICK, rel=0.01)


def test_where_it_is_not_told_how_busy_a_gpu_was_at_all_nobody_pays_for_it() -> None:
    a = hard("a", 30)
    a.brief = True
    node = Node(a, told=False)

    node.tick(100)

    assert a.charged == pytest.approx(a.took_in_all)


def test_who_paid_before_it_left_does_not_pay_for_who_fled() -> None:
    a, b = hard("a", 30, factor=0.01), hard("b", 40)
    a.brief = b.brief = a.flees = True
    node = Node(b, a)

    node.tick(300)

    assert b.took_in_all == pytest.approx(0.40 * 300 * TICK, rel=0.02)
    assert a.took_in_all <= 0.32 * 300 * TICK


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

    assert a.others == pytest.approx(0.3)
    assert a.neighbours == 2  # b might work
    assert a.rate == pytest.approx(0.7)

    node.strangers = {}
    node.tick(20)
    assert (a.others, a.neighbours, a.rate) == (0.0, 1, 1.0)


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


@pytest.mark.parametrize(("factor", "scale"), [(0.5, 1.0), (1.25, 0.8)])
def test_what_short_launches_are_charged_too_little_long_ones_do_not_pay(
    factor: float, scale: float
) -> None:
    a = hard("a", 30, factor=factor)

    Node(a, hard("b", 60)).tick(100)

    assert a.scale == pytest.approx(1 / factor, rel=0.05)
    assert a.long_scale == pytest.approx(scale, rel=0.05)


def test_a_correction_is_paid_at_the_rate_at_which_it_was_taken() -> None:
    shares, grants = Shares(every_process=True), []
    a = elastic("a", 30)
    for tick in range(1, 30):
        answer = GpuUtilization(tick * TICK, (ProcessSample(pid("a"), tick * TICK, 50),))
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


def test_a_shim_that_does_not_tell_what_has_ended_is_charged_what_is_measured() -> None:
    class Silent(Container):
        def reading(self) -> Reading:
            return replace(super().reading(), retired_ns=0)

    a = Silent("a", 30, 30, 1.0, 0.5)

    Node(a).tick(100)

    assert a.charged == pytest.approx(a.took_in_all, rel=0.03)


def test_a_changed_promise_holds_at_the_next_look() -> None:
    a, b = hard("a", 30), elastic("b", 30)
    node = Node(a, b)
    node.tick(20)

    a.promise = a.ceiling = 60
    node.tick()

    assert rates((a, b)) == [0.6, 0.4]


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
