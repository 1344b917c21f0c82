"""Nodes have numbers that say who they are, whatever comes and goes."""

from hypothesis import given
from hypothesis import strategies as st
from scheduler_world import ask, node_object, pod

from gpumanager.scheduler.decide import filter_nodes, prioritize
from gpumanager.scheduler.node import read_node
from gpumanager.scheduler.numbers import NOBODY, Numbers
from gpumanager.scheduler.state import ClusterState
from gpumanager.scheduler.verdicts import Verdicts

NAMES = [f"n{number}" for number in range(8)]


@given(st.lists(st.sampled_from(NAMES)))
def test_each_node_has_a_number_of_its_own_and_lists_know_the_present_one(steps: list[str]) -> None:
    numbers, there = Numbers(), set[str]()
    kept = numbers.read(NAMES)
    for name in steps:
        if name in there:
            there.remove(name)
            numbers.remove(name)
        else:
            there.add(name)
            numbers.add(name)
        found = list(numbers.read(kept).numbers[0 : len(NAMES)])

        assert found == [numbers.of(name) for name in NAMES]
        assert {name for name, n in zip(NAMES, found, strict=True) if n != NOBODY} == there
        assert len({n for n in found if n != NOBODY}) == len(there)
        assert all(numbers.names[n] == name for name, n in zip(NAMES, found, strict=True) if n)
        assert len(numbers.names) <= len(NAMES) + 1


def test_who_has_the_number_of_one_that_is_gone_is_answered_for_itself() -> None:
    state, wanted = ClusterState(), ask((30, 4))
    for name in NAMES:
        state.node(read_node(node_object(name, gpus=1)))
    kept, asked = Verdicts(state), state.numbers.read(["n3", "new", "n5"])
    filter_nodes(kept.of(wanted, asked), asked)

    state.node_gone("n3")
    state.node(read_node(node_object("new", gpus=1)))
    state.pod(pod("p", (90, 4), node="new"), "new")

    for names in (asked, [*NAMES, "new"]):
        few, anew = kept.of(wanted, names), Verdicts(state).of(wanted)
        found, expected = filter_nodes(few, names), filter_nodes(anew, names)
        assert set(found.fitting) == set(expected.fitting) == {*names} - {"n3", "new"}
        assert found.unfit == expected.unfit
        assert prioritize(few, names) == prioritize(anew, names)
