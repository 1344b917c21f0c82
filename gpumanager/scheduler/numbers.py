"""Nodes by number, so that what is kept of each stands in a row.

A request names hundreds of nodes, of which a dozen things are then asked: who fits, with how many
points, whether it has changed. Each name is looked up once and becomes a number; all the rest are
places in lists, which lie beside each other in memory where tables of names are scattered over it.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, Final

NOBODY: Final = 0
"""The number of names that are no node's."""


class Places:
    """Numbers of nodes. pick: what a row has for each of them, in their order."""

    __slots__ = ("numbers", "pick")

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = numbers
        self.pick: Callable[[Sequence[Any]], tuple[Any, ...]]
        if len(numbers) > 1:
            self.pick = itemgetter(*numbers)  # a third of the time of asking one by one
        else:
            self.pick = lambda row: tuple([row[number] for number in numbers])


class Names(list[str]):
    """Names of nodes as somebody sent them. Not to be changed: what `Numbers` found is kept with
    them, since a list is asked about several times.

    places: of each name, good for this edition.
    """

    __slots__ = ("edition", "places")

    def __init__(self, names: Iterable[str] = ()) -> None:
        super().__init__(names)
        self.places = Places(())
        self.edition = -1


class Numbers:
    """Gives numbers from 1, those of nodes that are gone once more.

    of: by name. names: by number. edition: another where a name has another number.
    """

    def __init__(self) -> None:
        self.of: dict[str, int] = {}
        self.names: list[str] = [""]
        self.edition = 0
        self._free: list[int] = []
        self._tidied = 0

    def add(self, name: str) -> int:
        """The number of a node that is there from now on."""
        number = self._free.pop() if self._free else len(self.names)
        if number == len(self.names):
            self.names.append(name)
        self.of[name], self.names[number] = number, name
        self.edition += 1
        return number

    def remove(self, name: str) -> None:
        """The node is gone; its number may be another's soon."""
        self._free.append(self.of.pop(name))
        self.edition += 1

    def read(self, names: Collection[str]) -> Places:
        """A number for each; NOBODY for who is not known."""
        if not isinstance(names, Names):
            return self._read(names)
        if names.edition != self.edition:
            self.note(names, self._read(names))
        return names.places

    def note(self, names: Names, places: Places) -> None:
        """What these were found to be."""
        names.places, names.edition = places, self.edition

    def tidy(self) -> None:
        """The same names and numbers as new objects that lie beside each other in memory.

        Ten thousand that lie between everything else were a page each, and a look-up of all of them
        took ten times as long.
        """
        if self._tidied != self.edition:
            self._tidied = self.edition
            self.names = "\n".join(self.names).split("\n")
            free = set(self._free)
            pairs = enumerate(self.names)
            self.of = {name: n for n, name in pairs if n != NOBODY and n not in free}

    def _read(self, names: Collection[str]) -> Places:
        return Places(list(map(self.of.get, names, repeat(NOBODY))))
