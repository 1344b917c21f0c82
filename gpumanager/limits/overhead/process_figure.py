"""What NVML's figure of a process contains: learnt, since drivers differ and none tells it.

Real drivers leave managed memory out (their kernel modules skip memory of clients in the kernel,
and the client for managed memory is one); the ideal simulated driver includes it. Memory of another
process that this one has opened may be in the figures of both. So processes write into their books
how much of either they have. Two measurements of one process, between which that amount changed,
give the answer: the figure changed by as much, or it stayed. Code that comes or goes in between may
feign either: 20 MiB more of managed memory beside a module of 20 MiB less leave the figure as it
was. So an answer is believed when it was seen twice, one after the other. Until then what the
driver had before is taken to be what it has (own_bytes() in native/shim/core/region.c).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from gpumanager.units import MIB

_TELLING: Final = 4 * MIB
"""A smaller change may be anything."""
_PART: Final = 8
"""Changes are alike that differ by less than such a part of them."""
_VOTES: Final = 2
"""An answer is believed when it was seen as often, one after another."""


@dataclass(frozen=True, slots=True)
class Beside:
    """One process on one device at one moment. figure: what the driver says, less the plain memory
    that is charged."""

    figure: int
    managed: int
    imported: int


@dataclass(slots=True)
class Contained:
    """Learns whether some memory is in the figure. known: None until then."""

    known: bool | None = None
    _last: bool | None = None
    _votes: int = 0
    """How often the last answer was seen, one after another."""

    def observe(self, change: int, figure_change: int) -> None:
        """Compare by how much the memory and the figure have changed."""
        near = abs(change) // _PART
        if abs(change) < _TELLING:
            return
        if abs(figure_change) <= near:
            self._vote(contained=False)
        elif abs(figure_change - change) <= near:
            self._vote(contained=True)

    def _vote(self, *, contained: bool) -> None:
        self._votes = self._votes + 1 if contained is self._last else 1
        self._last = contained
        if self._votes >= _VOTES:
            self.known = contained


@dataclass(slots=True)
class FigureContents:
    """What figures of one driver contain, as one container sees it."""

    managed: Contained = field(default_factory=Contained)
    imported: Contained = field(default_factory=Contained)

    def __iter__(self) -> Iterator[Contained]:
        """Yield them in the order of struct region_figure."""
        yield self.managed
        yield self.imported

    def compare(self, before: Mapping[int, Beside], now: Mapping[int, Beside]) -> None:
        """Compare two measurements of one process, by device. A change of both shows nothing."""
        for device in before.keys() & now.keys():
            old, new = before[device], now[device]
            figure = new.figure - old.figure
            if old.imported == new.imported:
                self.managed.observe(new.managed - old.managed, figure)
            elif old.managed == new.managed:
                self.imported.observe(new.imported - old.imported, figure)
