"""Takes a list of the API server apart while it comes in, one item at a time. Pure.

A list of all pods of a node is some MiB of text, and many more as objects; what was needed for a
moment stays with the process. So each item is decoded by itself and let go.
"""

import json
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

LONGEST: Final = 16 << 20
"""Characters of one item, or of all the rest."""
_BETWEEN: Final = re.compile(r"[\s,]*")
_NAME: Final = re.compile(r'("(?:[^"\\]|\\.)*")\s*:\s*')


class Place(Enum):
    """Where in the text we are."""

    BEFORE = "before"
    FIELDS = "fields"
    ITEMS = "items"
    AFTER = "after"


class Listing:
    """Feed it all of the text; then `finish`. fields: of the list, all but its items."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self._place = Place.BEFORE
        self._text = ""
        self._decoder = json.JSONDecoder()

    def feed(self, text: str) -> Iterator[Any]:
        """The items that are complete now; raises ValueError for what is no list."""
        self._text += text
        at = 0
        while (step := self._step(_past(self._text, at))) is not None:
            at, items = step
            yield from items
        self._text = self._text[at:]
        if len(self._text) > LONGEST:
            raise ValueError(f"an item of more than {LONGEST} characters, or no list at all")

    def finish(self) -> dict[str, Any]:
        """The list's other fields; raises ValueError where its text is not complete."""
        if self._place is not Place.AFTER:
            raise ValueError("the text ends in the middle of a list, or is none")
        return self.fields

    def _step(self, at: int) -> tuple[int, tuple[Any, ...]] | None:
        """Past the next part of the text, and the item if it is one; None: it is not all there."""
        if at == len(self._text) or self._place is Place.AFTER:
            return None
        closes = {Place.FIELDS: ("}", Place.AFTER), Place.ITEMS: ("]", Place.FIELDS)}
        close, after = closes.get(self._place, ("{", Place.FIELDS))
        if self._text[at] == close:
            self._place = after
            return at + 1, ()
        if self._place is Place.BEFORE:
            raise ValueError("not a JSON object")
        return self._item(at) if self._place is Place.ITEMS else self._field(at)

    def _item(self, at: int) -> tuple[int, tuple[Any, ...]] | None:
        value, at = self._decoded(at)
        return None if at < 0 else (at, (value,))

    def _field(self, at: int) -> tuple[int, tuple[Any, ...]] | None:
        name = _NAME.match(self._text, at)
        if name is None or name.end() == len(self._text):
            return None
        if name[1] == '"items"' and self._text[name.end()] == "[":
            self._place = Place.ITEMS
            return name.end() + 1, ()
        value, at = self._decoded(name.end())
        if at < 0:
            return None
        self.fields[json.loads(name[1])] = value
        return at, ()

    def _decoded(self, at: int) -> tuple[Any, int]:
        """A value and where it ends; -1 while it is not all there."""
        try:
            return self._decoder.raw_decode(self._text, at)
        except json.JSONDecodeError:
            return None, -1


def _past(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return found.end() if found else at
