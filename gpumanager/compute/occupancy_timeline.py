"""What a launch had of a GPU between two moments, by which others were there meanwhile.

A GPU gives processes that have work equal slices of its time in turn. A launch longer than a slice
is there for longer than it would take alone, and all that are there divide what short launches
leave. Short launches run inside of one slice, so that what was charged for them is what they took.
Of how much of it they took while a long one was there it is known how the limiter let them go:

    a container that the limiter makes wait takes its share as evenly as that lets it go, and no
    more than its slices; any other has taken all the time that was left over, and of that of long
    launches only what remains. Of time that was left over it did not take what it waited for.

Pure: times and amounts come in as numbers, ns all of them; times are of CLOCK_MONOTONIC.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Final

from gpumanager.compute.values import Holder

Process = tuple[Holder, int]
"""Of a container, by its slot."""


SLICE_NS: Final = 1_024_000
"""The default time slice of a channel group in NVIDIA's open kernel modules."""

FIRST_NS: Final = SLICE_NS // 2
"""Events see a launch begin with a slice of its own. So a launch that has waited for that has the
first one before all others, and of the last on average half."""

CLOSE: Final = 3
"""What differs by no more than this part of it, and by a slice, is the same."""


SELDOM: Final = 5
"""A container that waits for less than this part of the time counts as never made to wait."""

ALONE: Final = 1 - 1e-6
"""All of the time, but for what sums of numbers lose."""


@dataclass(slots=True)
class Interval:
    """A long launch on the GPU. cost: by what events say. charged: for it so far. fresh: nothing of
    its process was there just before it. had: GPU time, by what is known now; sure: nothing will be
    known better."""

    process: Process
    begun: int
    ended: int
    cost: int
    charged: int
    fresh: bool = False
    had: float = 0.0
    sure: bool = False

    @property
    def holder(self) -> Holder:
        return self.process[0]

    @property
    def first_until(self) -> int:
        """Until then it has the GPU before all others."""
        return min(self.ended, self.begun + FIRST_NS) if self.fresh else self.begun


@dataclass(frozen=True, slots=True)
class Window:
    """A time, what each container took of it by short launches, and for how long the limiter made
    it wait, all its threads together; one that is not named did not have to. turns: the length of
    one launch, of containers that waited for the end of each."""

    since: int
    until: int
    took: Mapping[Holder, int]
    waited: Mapping[Holder, int] = field(default_factory=dict)
    turns: Mapping[Holder, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OccupancyTimeline:
    """times: in order. first, later: until each, had by a process that was there all the time, with
    its first slice or after that."""

    times: Sequence[int]
    first: Sequence[float]
    later: Sequence[float]

    def of(self, interval: Interval) -> float:
        """What one of those had that it was made of.

        Where it differs from the cost by no more than a slice, it says nothing: of one that passes
        for short a slice may be a neighbour's. Nor does it where it differs by a part of it and
        nobody else was there: what other streams of its process did then, events tell.
        """
        if interval.ended - interval.begun <= SLICE_NS:
            return interval.cost
        begun, then, ended = map(
            self._place, (interval.begun, interval.first_until, interval.ended)
        )
        had = self.first[then] - self.first[begun] + self.later[ended] - self.later[then]
        alone = had > (interval.ended - interval.begun) * ALONE
        tolerance = _tolerance(interval.cost, alone=alone)
        return interval.cost if abs(had - interval.cost) <= tolerance else had

    def _place(self, time: int) -> int:
        return bisect_left(self.times, time)


def _tolerance(cost: int, *, alone: bool) -> float:
    if cost < SLICE_NS:
        return SLICE_NS
    return cost / CLOSE if alone else min(SLICE_NS, cost / CLOSE)


def occupancy_timeline(
    intervals: Iterable[Interval], windows: Sequence[Window], switching: float = 0.0
) -> OccupancyTimeline:
    """windows: in order, one after the other; outside of them nobody has short launches. switching:
    the part of the time that nobody has while processes have slices in turn."""
    untils = [window.until for window in windows]
    by_span: defaultdict[int, list[_Piece]] = defaultdict(list)
    pieces = _pieces(intervals, windows)
    for piece in pieces:
        inside = windows and piece.since >= windows[0].since
        by_span[bisect_right(untils, piece.since) if inside else -1].append(piece)
    each = [
        (own, windows[place] if 0 <= place < len(windows) else Window(0, 0, {}))
        for place, own in sorted(by_span.items())
    ]
    parts = [part for own, window in each for part in _parts(own, window, switching)]
    times = [piece.since for piece in pieces] + [piece.until for piece in pieces[-1:]]
    first = [part if piece.first else 0.0 for piece, part in zip(pieces, parts, strict=True)]
    later = [0.0 if piece.first else part for piece, part in zip(pieces, parts, strict=True)]
    sums = (list(accumulate(one, initial=0.0)) for one in (first, later))
    return OccupancyTimeline(times, *sums)


@dataclass(frozen=True)
class _Piece:
    """A time in which the same processes had a long launch there; first: these before others."""

    since: int
    until: int
    processes: frozenset[Process]
    first: bool = False

    @property
    def length(self) -> int:
        return self.until - self.since

    @cached_property
    def _holders(self) -> frozenset[Holder]:
        return frozenset(one for one, _slot in self.processes)

    def has(self, holder: Holder) -> bool:
        return holder in self._holders


def _pieces(intervals: Iterable[Interval], windows: Sequence[Window]) -> list[_Piece]:
    """In order, none missing between two."""
    edges = _edges(intervals)
    for window in windows:
        edges[window.since] += []
        edges[window.until] += []
    first: Counter[Process] = Counter()
    later: Counter[Process] = Counter()
    pieces = []
    for time, until in pairwise(sorted(edges)):
        for is_first, step, process in edges[time]:
            there = first if is_first else later
            there[process] += step
            if not there[process]:  # a container may have had hundreds: look at no more than needed
                del there[process]
        pieces.append(_Piece(time, until, frozenset(first or later), bool(first)))
    return pieces


def _edges(intervals: Iterable[Interval]) -> defaultdict[int, list[tuple[bool, int, Process]]]:
    """Where launches come (1) and go (-1), in their first slice or after it."""
    edges: defaultdict[int, list[tuple[bool, int, Process]]] = defaultdict(list)
    for interval in intervals:
        edges[interval.begun].append((True, 1, interval.process))
        edges[interval.first_until] += [(True, -1, interval.process), (False, 1, interval.process)]
        edges[interval.ended].append((False, -1, interval.process))
    return edges


def _parts(pieces: Sequence[_Piece], window: Window, switching: float) -> list[float]:
    """What each of the processes had that were there in each of these pieces of a window.

    Example: a launch of 20 ms beside another, for 40 ms, with 5 % lost: each had 19 ms.
    """
    slices = [_slices(piece, window) for piece in pieces]
    room = sum(sum(own.values()) for own in slices)
    part = _taken(pieces, slices, window) / room if room else 0.0
    return [
        (piece.length * (1 - _lost(piece, own, part, window, switching)) - part * sum(own.values()))
        / max(1, len(piece.processes))
        for piece, own in zip(pieces, slices, strict=True)
    ]


def _lost(
    piece: _Piece, own: Mapping[Holder, float], part: float, window: Window, switching: float
) -> float:
    """The part of a piece that was lost by switches: slices go round where there are two processes.

    part: of what short launches can have, that they took. One that waits for the end of each launch
    leaves the rest of its slice to others, so that switches come more often, but no more than two
    for each launch. Example: 20 ms with launches of 50 us in between, one in each round of 50 +
    1,024 us and two switches: 8.5 % is lost, not 4.7.
    """
    long, short = len(piece.processes), len(own)
    if piece.first or long + short < 2:  # noqa: PLR2004 - two
        return 0.0
    if not own or not own.keys() <= window.turns.keys():
        return switching
    switch = SLICE_NS * switching / (1 - switching)
    took = part * sum(own.values()) / piece.length
    each = sum(part * own[who] / window.turns[who] for who in own) * 2 * switch / piece.length
    most = (1 - took) * (long + short) * switch / (long * SLICE_NS + (long + short) * switch)
    return min(most, each) if long == 1 else switching


def _taken(
    pieces: Sequence[_Piece], slices: Sequence[Mapping[Holder, float]], window: Window
) -> float:
    """By short launches, while others had a long one there."""
    most = {
        who: min(took, sum(own.get(who, 0.0) for own in slices))
        for who, took in window.took.items()
    }
    left: float = sum(piece.length for piece in pieces if not piece.processes)
    paced = {
        who: min(most[who], window.took[who] * _beside(who, pieces), _remaining(who, left, window))
        for who in window.waited.keys() & most.keys()
        if who not in window.turns or window.waited[who] > (window.until - window.since) / SELDOM
    }
    left -= sum(window.took[who] - took for who, took in paced.items())
    others = [who for who in most if who not in paced]
    least = sum(window.took[who] for who in others) - left
    in_turn = sum(
        min(most[who], own[who], piece.length * window.turns[who] / (SLICE_NS + window.turns[who]))
        for who in others
        for piece, own in zip(pieces, slices, strict=True)
        if who in window.turns and who in own and len(piece.processes) == 1
    )
    return sum(paced.values()) + min(max(in_turn, least), sum(most[who] for who in others))


def _remaining(who: Holder, left: float, window: Window) -> float:
    """At most so much was not of the time left over: that it took, or others did, or it waited."""
    others = sum(took for one, took in window.took.items() if one != who)
    return max(0.0, window.took[who] - max(0.0, left - others - window.waited[who]))


def _beside(who: Holder, pieces: Sequence[_Piece]) -> float:
    """The part of the time without a long launch of its own when others had one there, and it had
    its turn."""
    free = [piece for piece in pieces if not piece.has(who)]
    beside = [piece for piece in free if piece.processes and not piece.first]
    return sum(one.length for one in beside) / (sum(one.length for one in free) or 1)


def _slices(piece: _Piece, window: Window) -> Mapping[Holder, float]:
    """What those with short launches have while there is a long one, if they want all they can."""
    if piece.first or not piece.processes:
        return {}
    others = [who for who, took in window.took.items() if took > 0 and not piece.has(who)]
    return dict.fromkeys(others, piece.length / (len(piece.processes) + len(others)))
