"""Long lists of node names in a request: cut out of its JSON, read once, recognised. Pure.

Names have no character that JSON escapes. So a list that is plain is split, not parsed; and what
was answered to a filter comes back in the request to prioritize, and is known by then. Whatever
does not look so is left to the JSON parser.
"""

import secrets
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from gpumanager.kubelet.pods import PodView
from gpumanager.scheduler.numbers import Names

T = TypeVar("T")

MOST_NODES: Final = 100_000
_OPEN: Final = b'"NodeNames":["'
_BETWEEN: Final = b'","'
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789-."
"""Of which names consist."""
_IN_NAMES: Final = _LETTERS.encode()
_NOT_IN_NAMES: Final = str.maketrans("", "", _LETTERS)
LISTS: Final = 8
"""Of names that are remembered: kube-scheduler places one pod after another."""
LONGEST_LIST: Final = 2 << 20
LONGEST_POD: Final = 64 << 10
"""Bytes that are remembered; what is longer is read again."""
Ends = tuple[int, bytes, bytes]
END: Final = 256
"""Bytes at each end by which a text is found: the name of a pod stands among the first."""


class BadRequest(ValueError):
    """What was sent cannot be understood: what is wrong with it, and where."""


@dataclass(frozen=True, slots=True)
class Cut:
    """names: of a list. text: the same as it stood there. rest: the request without it."""

    names: Collection[str]
    text: bytes
    rest: bytes


class Recent(Generic[T]):
    """What texts meant that were read or written lately. longest: bytes of one that is kept.

    They are found by their length and ends, then compared: a hash would read all of each.
    """

    def __init__(self, most: int, longest: int) -> None:
        self._most = most
        self._longest = longest
        self._found: OrderedDict[Ends, tuple[bytes, T]] = OrderedDict()

    def get(self, text: bytes) -> T | None:
        found = self._found.get(_ends(text))
        return found[1] if found is not None and found[0] == text else None

    def put(self, text: bytes, meant: T) -> None:
        if len(text) > self._longest:
            return
        ends = _ends(text)
        self._found[ends] = text, meant
        self._found.move_to_end(ends)
        if len(self._found) > self._most:
            self._found.popitem(last=False)

    def __len__(self) -> int:
        return len(self._found)


def _ends(text: bytes) -> Ends:
    return len(text), text[:END], text[-END:]


class NameLists:
    """Lists of names by their text: `a","b","c`.

    mark: what `cut` leaves in place of a list, and nobody else can have written there. pods: by the
    rest of a request whose own list was cut; filter and prioritize of a pod have the same.
    """

    def __init__(self, most: int = LISTS) -> None:
        self.mark = secrets.token_hex(16)
        self.lists: Recent[Collection[str]] = Recent(most, LONGEST_LIST)
        self.pods: Recent[PodView] = Recent(most, LONGEST_POD)

    def cut(self, body: bytes) -> Cut | None:
        """The first list of names, taken out; None where there is none that is plain.

        It may be another one than the request's own: then the mark is not where that should be.
        """
        start = body.find(_OPEN)
        first, last = start + len(_OPEN), body.find(b"]", start) - 1
        if start < 0 or last < first or body[last] != _BETWEEN[0]:
            return None
        text = body[first:last]
        names = self.lists.get(text) or _split(text)
        if names is None:
            return None
        self.lists.put(text, names)
        rest = (body[: first - 2], b'"', self.mark.encode(), b'"', body[last + 2 :])
        return Cut(names, text, b"".join(rest))


def _split(text: bytes) -> Collection[str] | None:
    """None where anything but names stands there, or too many."""
    between = text.translate(None, _IN_NAMES)
    gaps = len(between) // len(_BETWEEN)
    if gaps >= MOST_NODES or between != _BETWEEN * gaps:
        return None
    names = Names(text.decode("ascii").split(_BETWEEN.decode()))
    return names if len(names) == gaps + 1 else None


def few(names: list[str]) -> list[str]:
    if len(names) > MOST_NODES:
        raise BadRequest(f"NodeNames: {len(names)} names; the most is {MOST_NODES}")
    return names


def plain(text: Any) -> bool:
    """Nothing in it that JSON would escape, or that a path could not have."""
    return isinstance(text, str) and not text.translate(_NOT_IN_NAMES)
