"""Nodes have numbers that say who they are, whatever comes and goes."""

from hypothesis import given
from hypothesis import strategies as st

from gpumanager.scheduler.decide import filter_nodes, prioritize
from gpumanager.scheduler.name_lists import ANSWERS, LONGEST_ANSWER, NameLists
from gpumanager.scheduler.named import Names
from gpumanager.scheduler.node import read_node
from gpumanager.scheduler.numbers import NOBODY, Numbers
from gpumanager.scheduler.state import ClusterState
from gpumanager.scheduler.verdicts import Verdicts
from tests.scheduler.scheduler_world import ask, node_object, pod

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


def named(lists: NameLists, *names: str) -> Names:
    said = ",".join(f'"{name}"' for name in names)
    found = lists.cut(f'{{"Pod":{{}},"NodeNames":[{said}]}}'.encode())
    assert found
    return found.names


@given(st.lists(st.sampled_from([*NAMES, "stranger"]), min_size=1), st.data())
def test_names_that_were_answered_are_known_when_they_are_asked_about(
    asked: list[str], data: st.DataObject
) -> None:
    numbers = Numbers()
    lists = NameLists(numbers)
    for name in NAMES:
        numbers.add(name)
    first = named(lists, *asked)
    mark = data.draw(st.integers(0, 1))
    answer = lists.answering(first.sort(bytearray(number % 2 for number in range(9)))[mark])
    answered = [name for name in asked if numbers.of(name) % 2 == mark]
    assert list(answer) == answered

    if isinstance(answer, Names):
        again = named(lists, *answered)
        assert again.numbers is answer.numbers
        assert list(again) == answered
        assert [again.name(place) for place in range(len(again))] == answered
        assert list(again.numbers[0 : len(again)]) == [numbers.of(name) for name in answered]


def test_only_the_same_names_in_the_same_order_are_those_that_were_answered() -> None:
    lists = NameLists()
    lists.answering(named(lists, "n1", "n2"))

    for names in (["n2", "n1"], ["n1"], ["n1", "n2", "n3"], ["n1", "n22"], ["n11", "n2"]):
        assert list(named(lists, *names)) == names


def test_an_answer_s_names_have_the_numbers_of_whoever_bears_them_by_then() -> None:
    numbers = Numbers()
    lists = NameLists(numbers)
    for name in NAMES:
        numbers.add(name)
    lists.answering(named(lists, *NAMES))
    numbers.remove("n3")
    numbers.add("new")

    found = numbers.read(named(lists, *NAMES))

    assert found.numbers[3] == NOBODY
    assert list(found.numbers[0:8]) == [numbers.of(name) for name in NAMES]


def test_few_answers_are_kept_and_none_that_is_very_long() -> None:
    lists = NameLists()
    first = named(lists, "n0")
    lists.answering(first)
    lists.answering(named(lists, *["n" * 200] * (LONGEST_ANSWER // 200)))
    assert named(lists, "n0").numbers is first.numbers

    for number in range(ANSWERS):
        lists.answering(named(lists, f"m{number}"))

    assert named(lists, "n0").numbers is not first.numbers
