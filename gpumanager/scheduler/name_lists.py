"""Long lists of node names in a request: cut out of its JSON, which is then short. Pure.

Names have no character that JSON escapes. So a list that is plain is read by a table of names where
it stands, not parsed; whatever does not look so is left to the JSON parser. What is left of the
request to prioritize is what was left of that to filter, and is known by then.
"""

import secrets
from collections import OrderedDict, deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from gpumanager.kube.pod import PodView
from gpumanager.scheduler.named import Chosen, Names
from gpumanager.scheduler.numbers import Numbers

T = TypeVar("T")

MOST_NODES: Final = 100_000
_OPEN: Final = b'"NodeNames":['
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789-."
"""Of which names consist."""
LONGEST_NAME: Final = 253
"""Letters of a name in Kubernetes."""
_NOT_IN_NAMES: Final = str.maketrans("", "", _LETTERS)
PODS: Final = 8
"""That are remembered: kube-scheduler places one after another."""
LONGEST_POD: Final = 64 << 10
"""Bytes that are remembered; what is longer is read again."""
ANSWERS: Final = 2
LONGEST_ANSWER: Final = 4 << 20
"""Bytes of a list, or of the request in which it stands."""
Ends = tuple[int, bytes, bytes]
END: Final = 256
"""Bytes at each end by which a text is found: the name of a pod stands among the first."""


class BadRequest(ValueError):
    """What was sent cannot be understood: what is wrong with it, and where."""


@dataclass(frozen=True, slots=True)
class Cut:
    """names: of a list. rest: the request without it."""

    names: Names
    rest: bytes


class Recent(Generic[T]):
    """What texts meant that were read lately. longest: bytes of one that is kept.

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
    """Cuts lists of names out of requests.

    mark: what `cut` leaves in place of a list, and nobody else can have written there. pods: by the
    rest of a request whose own list was cut; filter and prioritize of a pod have the same.
    """

    def __init__(self, numbers: Numbers | None = None) -> None:
        self.mark = secrets.token_hex(16)
        self.pods: Recent[PodView] = Recent(PODS, LONGEST_POD)
        self._numbers = numbers or Numbers()
        self._answered: deque[tuple[bytes, Names]] = deque(maxlen=ANSWERS)

    def answering(self, names: Collection[str]) -> Collection[str]:
        """The same, which may be asked about next: they are known if they come in this order."""
        if isinstance(names, Chosen) and names:
            names = names.listed()
        if isinstance(names, Names) and 0 < len(names.said) <= LONGEST_ANSWER:
            self._answered.append((names.whole, names))
        return names

    def cut(self, body: bytes) -> Cut | None:
        """The first list of names, taken out; None where there is none that is plain.

        It may be another one than the request's own: then the mark is not where that should be.
        """
        start = body.find(_OPEN)
        if start < 0:
            return None
        first = start + len(_OPEN)
        names = self._known(body, first) or self._numbers.cut(body, first, MOST_NODES)
        if names is None:
            return None
        rest = (body[: first - 1], b'"', self.mark.encode(), b'"', body[names.end + 1 :])
        return Cut(names, b"".join(rest))

    def _known(self, body: bytes, first: int) -> Names | None:
        for whole, names in self._answered:
            if body.startswith(whole, first):
                return names.again(body, first)
        return None


def few(names: list[str]) -> list[str]:
    if len(names) > MOST_NODES:
        raise BadRequest(f"NodeNames: {len(names)} names; the most is {MOST_NODES}")
    return names


def plain(text: Any) -> bool:
    """Nothing in it that JSON would escape, or that a path could not have."""
    if not isinstance(text, str) or len(text) > LONGEST_NAME:
        return False
    return not text.translate(_NOT_IN_NAMES)
