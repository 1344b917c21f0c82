"""Lists of the API server, taken apart while they come in."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.kube import client
from gpumanager.kube.client import Listing

TEXT = st.text(max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
ITEMS = st.lists(st.dictionaries(TEXT, VALUES, max_size=3), max_size=4)


def taken_apart(text: str, cuts: list[int]) -> tuple[list[Any], dict[str, Any]]:
    whole = Listing()
    items: list[Any] = []
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for begin, end in itertools.pairwise(edges):
        items += whole.feed(text[begin:end])
    rest = whole.finish()
    if rest.get("items") == []:
        del rest["items"]
    return items, rest


@given(
    items=ITEMS,
    fields=st.dictionaries(TEXT, TEXT | st.dictionaries(TEXT, VALUES, max_size=3), max_size=3),
    cuts=st.lists(st.integers(0, 400), max_size=12),
    place=st.sampled_from(["first", "last"]),
    indent=st.sampled_from([None, 2]),
)
def test_it_finds_what_the_json_module_finds_wherever_the_text_is_cut(
    items: Any, fields: Any, cuts: list[int], place: str, indent: int | None
) -> None:
    fields.pop("items", None)
    content = {"items": items, **fields} if place == "first" else {**fields, "items": items}
    text = json.dumps(content, indent=indent)

    assert taken_apart(text, cuts) == (items, fields)


def test_an_empty_list_may_be_null() -> None:
    assert taken_apart('{"kind":"PodList","items":null}', []) == (
        [],
        {"kind": "PodList", "items": None},
    )


@given(text=st.text() | ITEMS.map(json.dumps), cuts=st.lists(st.integers(0, 40), max_size=5))
def test_what_is_no_list_is_said_to_be_none(text: str, cuts: list[int]) -> None:
    try:
        json.loads(text, parse_constant=float)
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011 - any of them will do
            taken_apart(text, cuts)


@given(cut=st.integers(0, 60))
def test_half_a_list_is_none(cut: int) -> None:
    text = '{"metadata": {"resourceVersion": "1"}, "items": [{"a": 1}, {"b": 2}]}'

    with pytest.raises(ValueError, match="in the middle"):
        taken_apart(text[:cut], [])


def test_an_item_that_never_ends_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LONGEST_ITEM", 100)

    with pytest.raises(ValueError, match="more than 100"):
        taken_apart('{"items": [{"a": "' + "x" * 200, [])
