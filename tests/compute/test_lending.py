"""Burst mode over time: who has the idle share, and how soon its owner has it back."""

from dataclasses import replace

import pytest

from tests.compute.model_node import GLANCE, GPU, OTHER, Container, Node, elastic, hard, rates


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
    assert not node.shares.active(node.readings())

    a.charged += 0.5 * GLANCE
    assert node.shares.active(node.readings()) == {GPU}
    node.poll()

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
    ids=["hard limits", "all want more than that", "no more than the guarantee is used", "alone"],
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
    assert set(node.shares.poll(node.now + GLANCE, own)) == {("a", 0), ("b", 0)}
    node.tick()
    assert rates((a, b, c)) == [1.0, 0.6, 1.0]


def test_a_short_burst_below_what_is_kept_for_it_wants_no_more_at_a_glance() -> None:
    a, b = hard("a", 50, wants=0.2), elastic("b", 50)
    node = Node(a, b)
    node.tick(20)
    lent = b.rate

    a.charged += 0.2 * 2 * GLANCE
    node.poll()

    assert b.rate == pytest.approx(lent, abs=0.03)


def test_two_that_burst_share_by_their_promises() -> None:
    node = Node(elastic("a", 10), elastic("b", 30), hard("c", 20, wants=0.0))

    node.tick(20)

    assert rates(node.containers) == [0.25, 0.75, 0.2]


def test_who_uses_a_part_of_its_promise_leaves_the_rest() -> None:
    a, b = hard("a", 50, wants=0.2), elastic("b", 50)

    Node(a, b).tick(30)

    assert b.rate == pytest.approx(0.76)


def test_who_leaves_is_forgotten() -> None:
    a, b = hard("a", 50), elastic("b", 50)
    node = Node(a, b)
    node.tick(20)

    node.containers = (b,)
    node.tick()

    assert b.rate == 1.0
    assert b.others == 0.0
