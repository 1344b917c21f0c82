"""The protocol's JSON, read and written."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.scheduler.extender.wire import (
    BadRequest,
    read_arguments,
    read_bind,
    write_filter,
    write_scores,
)
from gpumanager.scheduler.scoring.unschedulable_reasons import Unfit
from gpumanager.scheduler.scoring.verdicts import Filtered, by_reason
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
    return list(read_arguments(body)[1])


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
    names = sorted(set(names))
    _, asked, nodes = read_arguments(compact({"Pod": POD, "NodeNames": names}))
    fitting = [name for name in asked if data.draw(st.booleans())]
    unfit = {
        name: Unfit(f'"{name}" \n', final=data.draw(st.booleans()))
        for name in names
        if name not in fitting
    }

    said = json.loads(write_filter(Filtered(fitting, by_reason(unfit)), nodes))

    assert said["NodeNames"] == fitting
    assert {**said["FailedNodes"], **said["FailedAndUnresolvableNodes"]} == {
        name: one.phrase for name, one in unfit.items()
    }
    assert said["FailedAndUnresolvableNodes"].keys() == {n for n, u in unfit.items() if u.final}
    assert read(compact({"Pod": POD, "NodeNames": fitting})) == fitting


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
