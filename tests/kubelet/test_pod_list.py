"""A list of pods read item by item says what it says as a whole, whatever was read before."""

import json
import tracemalloc
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import chain, repeat
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.kubelet.pod_list import BEGIN, PodList

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

T = TypeVar("T")


def parse(known: PodList[T], chunks: Iterable[bytes]) -> tuple[T, ...]:
    """Of chunks that are all there: the coroutine has nothing to wait for."""

    async def pieces() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    try:
        known.parse(pieces()).send(None)
    except StopIteration as done:
        found: tuple[T, ...] = done.value
        return found
    raise AssertionError("it waits")


def listed(items: list[Any], layout: Any = (",", ":")) -> bytes:
    frame = {"kind": "PodList", "metadata": {}, "items": items}
    if isinstance(layout, tuple):
        return json.dumps(frame, separators=layout).encode()
    return json.dumps(frame, indent=layout).encode()


def cut(text: bytes, size: int = 1 << 16) -> list[bytes]:
    """As it comes over the wire."""
    return [text[place : place + size] for place in range(0, len(text), size)]


@given(st.lists(st.tuples(lists, layouts), max_size=4), st.integers(1, 200))
def test_every_list_is_read_as_if_it_were_the_only_one(
    history: list[tuple[list[Any], Any]], size: int
) -> None:
    known = PodList[Any](lambda item: item)
    for items, layout in history:
        assert list(parse(known, cut(listed(items, layout), size))) == items


def test_only_what_is_new_is_read() -> None:
    seen: list[str] = []
    known = PodList[None](lambda item: seen.append(item["metadata"]["uid"]))
    parse(known, cut(listed([{"metadata": {"uid": uid, "name": "x" * 99}} for uid in "abc"])))

    parse(known, cut(listed([{"metadata": {"uid": uid, "name": "x" * 99}} for uid in "cdb"])))

    assert seen == ["a", "b", "c", "d"]


def test_a_pod_that_changed_far_behind_its_name_is_read_again() -> None:
    known = PodList[Any](lambda item: item)
    before, after = ({"a": "x" * 999, "phase": phase} for phase in ("Pending", "Running"))
    parse(known, cut(listed([before])))

    assert parse(known, cut(listed([after]))) == (after,)


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

    assert list(parse(PodList[Any](lambda item: item), cut(text.encode(), 7))) == expected


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
        parse(PodList[Any](lambda item: item), cut(text.encode(errors="surrogateescape"), 7))


def test_of_a_long_list_little_is_in_memory() -> None:
    """200 pods with 250 KB of annotations each: 50 MB."""
    note = {"note": 'x"' * 83_000}
    frame = b'{"kind":"PodList","metadata":{},"items":['
    names = [f"pod-{number:04}" for number in range(200)]

    def texts() -> Iterator[bytes]:
        yield frame
        for number, name in enumerate(names):
            pod = {"metadata": {"name": name, "labels": "y" * BEGIN, "annotations": note}}
            yield from cut((b"," if number else b"") + json.dumps(pod).encode())
        yield b"]}"

    known = PodList[str](lambda item: str(item["metadata"]["name"]))
    tracemalloc.start()
    try:
        assert list(parse(known, texts())) == names
        assert list(parse(known, texts())) == names
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 8 << 20


def test_a_pod_that_is_too_large_is_no_list() -> None:
    """Left out it would look as if it were gone."""
    chunks = chain([b'{"items":[{"a":"'], repeat(b"x" * (1 << 16)))

    with pytest.raises(ValueError, match="a pod of more than"):
        parse(PodList[Any](lambda item: item), chunks)
