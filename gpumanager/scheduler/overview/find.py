"""Search for nodes, and the page of results that is shown. Pure, in pieces."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from gpumanager.scheduler.cooperative import Work, batches
from gpumanager.scheduler.overview.lines import NodeLine, Overview

SORTS: Final = ("name", "granted", "free")
STATES: Final[Mapping[str, Callable[[NodeLine], object]]] = {
    "all": lambda _: True,
    "free": lambda line: line.total.free,
    "closed": lambda line: line.total.closed,
    "trouble": lambda line: line.node.trouble,
}
"""Nodes that have at least one such GPU, or whose GPUs are not known for some trouble."""
PORTION: Final = 250
"""Lines, or others of which there are many, that are looked through in one piece."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody looks for. page: from 1. per_page: lines."""

    search: str = ""
    state: str = "all"
    sort: str = "name"
    page: int = 1
    per_page: int = 25

    @property
    def word(self) -> str:
        """What is searched for, as texts of lines are written."""
        return self.search.strip().lower()


@dataclass(frozen=True, slots=True)
class NodePage:
    """matches: how many lines there are in all; page: the one that is shown, of `pages`."""

    lines: tuple[NodeLine, ...]
    matches: int
    page: int
    pages: int


def find(overview: Overview, wanted: Wanted) -> Work[NodePage]:
    """Return the page of matching lines; a page beyond the last is the last."""
    lines, word, fits = overview.lines, wanted.word, STATES[wanted.state]
    matching: list[NodeLine] = []
    for names in batches(overview.order, PORTION):
        some = [lines[name] for _, name in names]
        matching += [line for line in some if word in line.text and fits(line)]
        yield
    if wanted.sort != "name":
        # Lines alike stay in the order of names: in classes, of which there are few.
        classes: dict[float, list[NodeLine]] = {}
        for portion in batches(matching, PORTION):
            for line in portion:
                classes.setdefault(line.granted, []).append(line)
            yield
        order = sorted(classes, reverse=wanted.sort == "granted")
        matching = list(chain.from_iterable(classes[one] for one in order))
    pages = max(1, -(-len(matching) // wanted.per_page))
    page = min(wanted.page, pages)
    begin = (page - 1) * wanted.per_page
    shown = tuple(matching[begin : begin + wanted.per_page])
    return NodePage(shown, len(matching), page, pages)
