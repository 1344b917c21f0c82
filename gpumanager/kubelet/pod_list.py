"""The text of a list of pods, read again and again: a pod whose text has not changed is known.

A list of hundreds of pods is megabytes of JSON, and between two looks one pod of it is new. So it
is read item by item, and an item that is byte for byte one of the last list is not read again. A
text that is laid out in any other way than expected is read as a whole.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

BEGIN: Final = 128
"""Characters by which an item is looked up: its pod's name is among them. Whatever is shorter, or
begins like another, is read anew."""

_ITEMS: Final = re.compile(r'"items"\s*:\s*\[')
_SPACE: Final = re.compile(r"\s*(?=\{)")
_COMMA: Final = re.compile(r"\s*,\s*(?=\{)")
_DECODER: Final = json.JSONDecoder()


class PodList(Generic[T]):
    """read: a pod of its JSON object. Any thread may parse; the last one's items are kept."""

    def __init__(self, read: Callable[[Any], T]) -> None:
        self._read = read
        self._known: dict[str, tuple[str, T]] = {}

    def parse(self, body: bytes) -> tuple[T, ...]:
        """Raises ValueError and whatever `read` raises."""
        text = body.decode()
        found = self._piecemeal(text)
        if found is None:
            return tuple(map(self._read, json.loads(text)["items"] or []))
        return found

    def _piecemeal(self, text: str) -> tuple[T, ...] | None:
        """None for a text that this is not meant for."""
        opened = _ITEMS.search(text)
        if opened is None or not _is_frame(text[: opened.end()] + "]}"):
            return None
        known, kept, found = self._known, dict[str, tuple[str, T]](), list[T]()
        place, following = opened.end(), _SPACE
        while between := following.match(text, place):
            begin = text[between.end() : between.end() + BEGIN]
            item = known.get(begin)
            if item is None or not text.startswith(item[0], between.end()):
                value, end = _DECODER.raw_decode(text, between.end())
                item = (text[between.end() : end], self._read(value))
            kept[begin] = item
            found.append(item[1])
            place, following = between.end() + len(item[0]), _COMMA
        if not _is_frame('{"items":[' + text[place:]):
            return None
        self._known = kept
        return tuple(found)


def _is_frame(text: str) -> bool:
    """Whether what is around the items is a list's, without any of them."""
    try:
        frame = json.loads(text)
    except ValueError:
        return False
    return isinstance(frame, dict) and frame.get("items") == []
