"""How the nodes of a cluster stand to one shape of pod, kept so that a large question is cheap.

Nodes are kept by what is answered about them: those that will do by their points, the others by
their reason. So an answer about ten thousand nodes is put together of a few classes, and a node
that changes moves from one class to another in constant time.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Classes(Generic[K]):
    """Numbers of nodes by their key. Each is in one class at most; no class is empty."""

    def __init__(self) -> None:
        self.members: dict[K, set[int]] = {}

    def add(self, node: int, key: K) -> None:
        found = self.members.get(key)
        if found is None:
            found = self.members[key] = set()
            self._began(key)
        found.add(node)

    def discard(self, node: int, key: K) -> None:
        found = self.members.get(key)
        if found is None:
            return
        found.discard(node)
        if not found:
            del self.members[key]
            self._ended(key)

    def clear(self) -> None:
        self.members.clear()

    def _began(self, key: K) -> None:
        """There is a class more."""

    def _ended(self, key: K) -> None:
        """There is a class less."""


class Ranks(Classes[float]):
    """Nodes by their points, the best first."""

    def __init__(self) -> None:
        super().__init__()
        self._ascending: list[float] = []

    def best(self) -> Iterator[set[int]]:
        """Nodes with equal points, from the most points to the least; not while it is changed."""
        return (self.members[points] for points in reversed(self._ascending))

    def clear(self) -> None:
        super().clear()
        self._ascending.clear()

    def _began(self, key: float) -> None:
        insort(self._ascending, key)

    def _ended(self, key: float) -> None:
        del self._ascending[bisect_left(self._ascending, key)]
