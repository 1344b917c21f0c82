"""Long lists of node names in a request: cut out of its JSON, read once, recognised. Pure.

Names have no character that JSON escapes. So a list that is plain is split, not parsed; and what
was answered to a filter comes back in the request to prioritize, and is known by then. Whatever
does not look so is left to the JSON parser.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

MOST_NODES: Final = 100_000
_OPEN: Final = b'"NodeNames":["'
_CLOSE: Final = b'"]'
MARK: Final = b'"NodeNames":"*"'
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789-."
"""Of which names consist."""
_IN_LISTS: Final = f'{_LETTERS}",'.encode()
_NOT_IN_NAMES: Final = str.maketrans("", "", _LETTERS)
LISTS: Final = 8
"""Of names that are remembered: kube-scheduler places one pod after another."""


class BadRequest(ValueError):
    """What was sent cannot be understood: what is wrong with it, and where."""


class NameLists:
    """Lists of names that were read or written lately, by their text: `a","b","c`."""

    def __init__(self, most: int = LISTS) -> None:
        self._most = most
        self._lists: OrderedDict[bytes, Sequence[str]] = OrderedDict()

    def read(self, text: bytes) -> Sequence[str]:
        """Raises BadRequest."""
        known = self._lists.get(text)
        if known is None:
            known = _split(text)
            self.remember(text, known)
        return known

    def remember(self, text: bytes, names: Sequence[str]) -> None:
        self._lists[text] = names
        self._lists.move_to_end(text)
        if len(self._lists) > self._most:
            self._lists.popitem(last=False)


def cut(body: bytes) -> tuple[bytes | None, bytes]:
    """The names, and the rest with a mark in their place; nothing is cut where it is not plain."""
    start = body.rfind(_OPEN)
    end = body.find(_CLOSE, start)
    if start < 0 or end < 0:
        return None, body
    text = body[start + len(_OPEN) : end]
    if text.translate(None, _IN_LISTS):
        return None, body
    return text, body[:start] + MARK + body[end + len(_CLOSE) :]


def _split(text: bytes) -> Sequence[str]:
    """Raises BadRequest; of a text that `cut` let through."""
    names = text.decode("ascii").split('","')
    if text.count(b'"') + text.count(b",") != 3 * (len(names) - 1):
        raise BadRequest("NodeNames: expected names")
    return few(names)


def few(names: list[str]) -> Sequence[str]:
    if len(names) > MOST_NODES:
        raise BadRequest(f"NodeNames: {len(names)} names; the most is {MOST_NODES}")
    return names


def plain(text: Any) -> bool:
    """Nothing in it that JSON would escape, or that a path could not have."""
    return isinstance(text, str) and not text.translate(_NOT_IN_NAMES)
