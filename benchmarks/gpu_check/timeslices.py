"""How two processes share a GPU, seen from inside one kernel of each, which notes when it stands
still.

Pure. Both kernels read the GPU's own clock, in ns, so their timelines can be laid over each other.
A pause is noted from the last look before it to the first look after it, so that the steps of the
clock make a pause longer and never let two processes seem to run at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Timeline:
    """A kernel's: from when to when, and the pauses in between."""

    begin: int
    end: int
    away: tuple[Interval, ...]

    @property
    def impossible(self) -> bool:
        """The kernel wrote nothing, or time went back."""
        marks = [self.begin, *(mark for pause in self.away for mark in pause), self.end]
        return self.begin <= 0 or any(later < earlier for earlier, later in pairwise(marks))

    def runs(self, window: Interval) -> Iterator[Interval]:
        """When it had the GPU, as far as that is within the window."""
        marks = [self.begin, *(mark for pause in self.away for mark in pause), self.end]
        for begin, end in zip(marks[::2], marks[1::2], strict=True):
            if begin < window[1] and end > window[0]:
                yield max(begin, window[0]), min(end, window[1])


@dataclass(frozen=True, slots=True)
class Sharing:
    """While both kernels were there, ns. slices: whole times that one had the GPU. switches: from
    the end of one's time to the beginning of the other's. overlap: both had it.
    """

    window: int
    slices: tuple[int, ...]
    switches: tuple[int, ...]
    overlap: int


def sharing(one: Timeline, other: Timeline) -> Sharing:
    window = max(one.begin, other.begin), min(one.end, other.end)
    runs = sorted(
        (begin, end, number)
        for number, timeline in enumerate((one, other))
        for begin, end in timeline.runs(window)
    )
    overlap, switches, (_, latest, holder) = 0, [], runs[0] if runs else (0, 0, 0)
    for begin, end, number in runs[1:]:
        overlap += max(0, min(latest, end) - begin)
        if number != holder and begin >= latest:
            switches.append(begin - latest)
        if end > latest:
            latest, holder = end, number
    whole = [end - begin for begin, end, _ in runs if begin > window[0] and end < window[1]]
    return Sharing(max(0, window[1] - window[0]), tuple(whole), tuple(switches), overlap)


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p10, p50 and p90; empty of nothing."""
    ordered = sorted(values)
    return {f"p{part}": ordered[len(ordered) * part // 100] for part in (10, 50, 90) if ordered}
