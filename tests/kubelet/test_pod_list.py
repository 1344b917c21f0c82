"""A list of pods read item by item says what it says as a whole, whatever was read before."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.kubelet.pod_list import PodList

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
pods = st.fixed_dictionaries(
    {"metadata": st.fixed_dictionaries({"uid": st.sampled_from("abc"), "items": values})}
)
lists = st.lists(pods, max_size=4)
layouts = st.sampled_from((None, 1, (",", ":")))


def listed(items: list[Any], layout: Any = (",", ":")) -> bytes:
    frame = {"kind": "PodList", "metadata": {}, "items": items}
    if isinstance(layout, tuple):
        return json.dumps(frame, separators=layout).encode()
    return json.dumps(frame, indent=layout).encode()


@given(st.lists(st.tuples(lists, layouts), max_size=4))
def test_every_list_is_read_as_if_it_were_the_only_one(
    history: list[tuple[list[Any], Any]],
) -> None:
    known = PodList[Any](lambda item: item)
    for items, layout in history:
        assert list(known.parse(listed(items, layout))) == items


def test_only_what_is_new_is_read() -> None:
    seen: list[str] = []
    known = PodList[None](lambda item: seen.append(item["metadata"]["uid"]))
    known.parse(listed([{"metadata": {"uid": uid, "name": "x" * 99}} for uid in "abc"]))

    known.parse(listed([{"metadata": {"uid": uid, "name": "x" * 99}} for uid in "cdb"]))

    assert seen == ["a", "b", "c", "d"]


def test_a_pod_that_changed_far_behind_its_name_is_read_again() -> None:
    known = PodList[Any](lambda item: item)
    before, after = ({"a": "x" * 999, "phase": phase} for phase in ("Pending", "Running"))
    known.parse(listed([before]))

    assert known.parse(listed([after])) == (after,)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":{"items":[{"no":1}]},"items":[{"b":2}]}',
        '{"items":[{"b":2}],"kind":"PodList"}',
        '{"items":[{"b":1}],"items":[{"b":2}]}',
        '{"items":[{"b":2}],"x":"]"}',
        '{"items":null}',
        '{"kind":"PodList","items":[]}',
    ],
)
def test_an_unusual_list_is_read_as_a_whole(text: str) -> None:
    expected = json.loads(text)["items"] or []

    assert list(PodList[Any](lambda item: item).parse(text.encode())) == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"items":[{"b":2},]}',
        '{"items":[{"b":2}{"b":2}]}',
        "",
        "[]",
        '{"items":[{"b":2}',
        '{"items":[{"b":2},]',
        "\udcff",
    ],
)
def test_half_a_list_is_none(text: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        PodList[Any](lambda item: item).parse(text.encode(errors="surrogateescape"))
