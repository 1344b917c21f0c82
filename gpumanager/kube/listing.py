"""Takes a list of the API server apart while it comes in, one item at a time. Pure.

Tenants decide how long the list of a node's pods is: up to 1.5 MB each. So each item is decoded by
itself and let go, and neither the text nor the objects of all are ever in memory at once.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

LONGEST_ITEM: Final = 16 << 20
"""Characters of one item, or of all that is not an item."""
_ITEMS: Final = re.compile(r'"items"\s*:\s*\[')
_BETWEEN: Final = re.compile(r"[\s,]*")


class Listing:
    """Feed it all of the text; then `finish`."""

    def __init__(self) -> None:
        self._head = ""
        """Up to the first item."""
        self._text = ""
        """Which is not decoded yet; in the end what stands behind the last item."""
        self._decoder = json.JSONDecoder()

    def feed(self, text: str) -> Iterator[Any]:
        """Yield the items that are complete now; raises ValueError for what is no list."""
        self._text += text
        if not self._head:
            # Example of a match that is not it: {"metadata": {"items": [1]}, "items": [...]}.
            for found in _ITEMS.finditer(self._text):
                head = found.string[: found.end()]
                with suppress(ValueError):
                    json.loads(head + "]}")
                    self._head, self._text = head, self._text[found.end() :]
                    break
        at = 0
        while self._head:
            between = _BETWEEN.match(self._text, at)
            at = between.end() if between else at
            try:
                item, at = self._decoder.raw_decode(self._text, at)
            except json.JSONDecodeError:  # the list's end, or an item that is not all there
                break
            yield item
        self._text = self._text[at:]
        if len(self._text) > LONGEST_ITEM:
            raise ValueError(f"an item of more than {LONGEST_ITEM} characters, or no list at all")

    def finish(self) -> dict[str, Any]:
        """Return the list's other fields; raises ValueError where its text is not complete."""
        try:
            fields = json.loads(self._head + self._text)
        except json.JSONDecodeError as error:
            raise ValueError("the text ends in the middle of a list, or is none") from error
        if not isinstance(fields, dict):
            raise ValueError("not a JSON object")  # noqa: TRY004 - as of what is no JSON
        if self._head:
            del fields["items"]
        return fields
