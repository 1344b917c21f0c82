"""The protocol's JSON: the short way and the long one read and write the same."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.scheduler.decide import Filtered, by_reason
from gpumanager.scheduler.name_lists import LONGEST_POD, PODS, BadRequest, NameLists
from gpumanager.scheduler.phrases import Unfit
from gpumanager.scheduler.wire import (
    read_arguments,
    read_bind,
    write_filter,
    write_scores,
)
from tests.scheduler.scheduler_world import pod_object

POD = pod_object("p", (30, 4), uid="u")
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-."
NAMES = st.lists(st.text(LETTERS, min_size=1, max_size=8), max_size=6)
ANYTHING = st.lists(
    st.one_of(st.text(max_size=5), st.integers(), st.none(), st.just('a","b'), st.just('"]')),
    max_size=4,
)


def compact(content: Any) -> bytes:
    """As Go writes it."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def read(body: bytes) -> list[str]:
    return list(read_arguments(body, NameLists()).names)


@given(NAMES)
def test_names_are_read_alike_however_they_are_spaced(names: list[str]) -> None:
    content = {"Pod": POD, "Nodes": None, "NodeNames": names}

    assert read(compact(content)) == names
    assert read(json.dumps(content, indent=1).encode()) == names


@given(ANYTHING)
def test_what_is_no_list_of_names_is_refused_however_it_is_spaced(names: list[Any]) -> None:
    def understood(body: bytes) -> list[str] | None:
        try:
            return read(body)
        except BadRequest:
            return None

    content = {"Pod": POD, "NodeNames": names}
    long = understood(json.dumps(content, indent=1).encode())

    assert understood(compact(content)) == long
    assert long in (None, names)


@given(NAMES, st.data())
def test_an_answer_says_what_was_decided(names: list[str], data: st.DataObject) -> None:
    lists = NameLists()
    names = sorted(set(names))
    arguments = read_arguments(compact({"Pod": POD, "NodeNames": names}), lists)
    fitting = [name for name in arguments.names if data.draw(st.booleans())]
    unfit = {
        name: Unfit(f'"{name}" \n', final=data.draw(st.booleans()))
        for name in names
        if name not in fitting
    }

    said = json.loads(write_filter(arguments, Filtered(fitting, by_reason(unfit))))

    assert said["NodeNames"] == fitting
    assert {**said["FailedNodes"], **said["FailedAndUnresolvableNodes"]} == {
        name: one.phrase for name, one in unfit.items()
    }
    assert said["FailedAndUnresolvableNodes"].keys() == {n for n, u in unfit.items() if u.final}
    again = read_arguments(compact({"Pod": POD, "NodeNames": fitting}), lists)
    assert list(again.names) == fitting


def test_a_pod_that_was_asked_about_is_not_read_again() -> None:
    lists = NameLists()
    first = read_arguments(compact({"Pod": POD, "NodeNames": ["a", "b"]}), lists)

    again = read_arguments(compact({"Pod": POD, "NodeNames": ["a"]}), lists)
    other = read_arguments(compact({"Pod": {**POD, "more": 1}, "NodeNames": ["a"]}), lists)

    assert again.pod is first.pod
    assert other.pod is not first.pod
    assert list(again.names) == ["a"]


def test_few_pods_are_remembered() -> None:
    lists = NameLists()
    for number in range(2 * PODS):
        read_arguments(compact({"Pod": {**POD, "more": number}, "NodeNames": ["a"]}), lists)

    assert len(lists.pods) == PODS


def test_pods_that_differ_only_in_their_middle_are_told_apart() -> None:
    lists = NameLists()
    around = {"a": "x" * 500, "metadata": {}, "z": "x" * 500}

    for name in ("p", "q", "p"):
        pod = {**around, **POD, "metadata": {**POD["metadata"], "name": name}}
        assert read_arguments(compact({"Pod": pod, "NodeNames": ["a"]}), lists).pod.name == name


def test_what_is_very_long_is_not_remembered() -> None:
    lists, names = NameLists(), ["a", "b"]
    long_pod = {**POD, "more": "x" * LONGEST_POD}

    arguments = read_arguments(compact({"Pod": long_pod, "NodeNames": names}), lists)

    assert list(arguments.names) == names
    assert len(lists.pods) == 0


@pytest.mark.parametrize(
    "before",
    [
        {"more": {"NodeNames": ["x"]}},
        {"NodeNames": ["x"], "nodenames": ["y"]},
        {"NODENAMES": "*", "more": {"NodeNames": ["x"]}},
        {"more": '"NodeNames":["x"]', "NodeNames": ["y"]},
    ],
)
def test_names_elsewhere_in_a_request_are_not_taken_for_its_own(before: Any) -> None:
    content = {**before, "Pod": POD, "nodeNames": ["a"]}
    spaced = json.dumps(content, indent=1).encode()

    assert read(compact(content)) == read(spaced) == ["a"]


def test_a_list_that_does_not_end_is_no_list() -> None:
    for text in (b'"NodeNames":["', b'"NodeNames":["]', b'"NodeNames":["a', b'"NodeNames":["a"'):
        assert NameLists().cut(b"{" + text) is None


def test_scores_are_a_list_of_hosts() -> None:
    assert json.loads(write_scores(((10, ["a", "c"]), (9, {"b"})))) == [
        {"Host": "a", "Score": 10},
        {"Host": "c", "Score": 10},
        {"Host": "b", "Score": 9},
    ]
    assert json.loads(write_scores(())) == []


@pytest.mark.parametrize("field", ["PodName", "PodNamespace", "PodUID", "Node"])
@pytest.mark.parametrize("value", [None, 1, [], "a/b", "../x", "a b", "ä"])
def test_names_in_a_binding_lead_nowhere_else(field: str, value: Any) -> None:
    good = {"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "a"}
    assert read_bind(compact(good)).path == "/api/v1/namespaces/n/pods/p"

    with pytest.raises(BadRequest, match=field):
        read_bind(compact({**good, field: value}))
