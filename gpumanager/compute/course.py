"""What a launch had of a GPU between two moments, by which others were there meanwhile.

A GPU gives processes that have work equal slices of its time in turn. A launch longer than a slice
is there for longer than it would take alone, and all that are there divide what short launches
leave. Short launches run inside of one slice, so that what was charged for them is what they took.
Of how much of it they took while a long one was there it is known how the limiter let them go:

    who is made to wait by the limiter takes its share as evenly as that lets it go, and no more
    than its slices; who is not has taken all the time that was left over, and of that of long
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
"""Events see a launch begin with a slice of its own. So who has waited for that has the first one
before all others, and of the last on average half."""

CLOSE: Final = 3
"""What differs by no more than this part of it, and by a slice, is the same."""


SELDOM: Final = 5
"""Who waits for less than this part of the time is there as if nobody made it wait."""

ALONE: Final = 1 - 1e-6
"""All of the time, but for what sums of numbers lose."""


@dataclass(slots=True)
class Stay:
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
class Span:
    """A time, what each container took of it by short launches, and for how long the limiter made
    it wait, all its threads together; who is not named did not have to. turns: the length of one
    launch, of containers that waited for the end of each."""

    since: int
    until: int
    took: Mapping[Holder, int]
    waited: Mapping[Holder, int] = field(default_factory=dict)
    turns: Mapping[Holder, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Course:
    """times: in order. first, later: until each, had by a process that was there all the time, with
    its first slice or after that. doubtful: until each, for how long it was not certain."""

    times: Sequence[int]
    first: Sequence[float]
    later: Sequence[float]
    doubtful: Sequence[float]

    def of(self, stay: Stay) -> float:
        """What one of those had that it was made of.

        Where it differs from the cost by no more than a slice, it says nothing unless it is
        certain, and of one that passes for short a slice may be a neighbour's; nor by a part of it
        if nobody else was there, for what other streams of its process did then, events tell.
        """
        if stay.ended - stay.begun <= SLICE_NS:
            return stay.cost
        begun, then, ended = map(self._place, (stay.begun, stay.first_until, stay.ended))
        had = self.first[then] - self.first[begun] + self.later[ended] - self.later[then]
        alone = had > (stay.ended - stay.begun) * ALONE
        certain = self.doubtful[begun] == self.doubtful[ended] and not alone
        doubt = 0.0 if certain and stay.cost >= SLICE_NS else _doubt(stay.cost, alone=alone)
        return stay.cost if abs(had - stay.cost) <= doubt else had

    def _place(self, time: int) -> int:
        return bisect_left(self.times, time)


def _doubt(cost: int, *, alone: bool) -> float:
    if cost < SLICE_NS:
        return SLICE_NS
    return cost / CLOSE if alone else min(SLICE_NS, cost / CLOSE)


def course(stays: Iterable[Stay], spans: Sequence[Span], switching: float = 0.0) -> Course:
    """spans: in order, one after the other; outside of them nobody has short launches. switching:
    the part of the time that nobody has while processes have slices in turn."""
    untils = [span.until for span in spans]
    by_span: defaultdict[int, list[_Piece]] = defaultdict(list)
    pieces = _pieces(stays, spans)
    for piece in pieces:
        inside = spans and piece.since >= spans[0].since
        by_span[bisect_right(untils, piece.since) if inside else -1].append(piece)
    each = [
        (own, spans[place] if 0 <= place < len(spans) else Span(0, 0, {}))
        for place, own in sorted(by_span.items())
    ]
    parts = [part for own, span in each for part in _parts(own, span, switching)]
    doubts = [not _certain(own, span) for own, span in each]
    doubtful = [
        piece.length * doubt for doubt, (own, _) in zip(doubts, each, strict=True) for piece in own
    ]
    times = [piece.since for piece in pieces] + [piece.until for piece in pieces[-1:]]
    first = [part if piece.first else 0.0 for piece, part in zip(pieces, parts, strict=True)]
    later = [0.0 if piece.first else part for piece, part in zip(pieces, parts, strict=True)]
    sums = (list(accumulate(one, initial=0.0)) for one in (first, later, doubtful))
    return Course(times, *sums)


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


def _pieces(stays: Iterable[Stay], spans: Sequence[Span]) -> list[_Piece]:
    """In order, none missing between two."""
    edges = _edges(stays)
    for span in spans:
        edges[span.since] += []
        edges[span.until] += []
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


def _edges(stays: Iterable[Stay]) -> defaultdict[int, list[tuple[bool, int, Process]]]:
    """Where launches come (1) and go (-1), in their first slice or after it."""
    edges: defaultdict[int, list[tuple[bool, int, Process]]] = defaultdict(list)
    for stay in stays:
        edges[stay.begun].append((True, 1, stay.process))
        edges[stay.first_until] += [(True, -1, stay.process), (False, 1, stay.process)]
        edges[stay.ended].append((False, -1, stay.process))
    return edges


def _parts(pieces: Sequence[_Piece], span: Span, switching: float) -> list[float]:
    """What each of the processes had that were there in each of these pieces of a span.

    Example: a launch of 20 ms beside another, for 40 ms, with 5 % lost: each had 19 ms.
    """
    slices = [_slices(piece, span) for piece in pieces]
    room = sum(sum(own.values()) for own in slices)
    part = _taken(pieces, slices, span) / room if room else 0.0
    return [
        (piece.length * (1 - _lost(piece, own, part, span, switching)) - part * sum(own.values()))
        / max(1, len(piece.processes))
        for piece, own in zip(pieces, slices, strict=True)
    ]


def _lost(
    piece: _Piece, own: Mapping[Holder, float], part: float, span: Span, switching: float
) -> float:
    """The part of a piece that was lost by switches: slices go round where there are two processes.

    part: of what short launches can have, that they took. Who waits for the end of each launch
    leaves the rest of its slice to others, so that switches come more often, but no more than two
    for each launch. Example: 20 ms with launches of 50 us in between, one in each round of 50 +
    1,024 us and two switches: 8.5 % is lost, not 4.7.
    """
    long, short = len(piece.processes), len(own)
    if piece.first or long + short < 2:  # noqa: PLR2004 - two
        return 0.0
    if not own or not own.keys() <= span.turns.keys():
        return switching
    switch = SLICE_NS * switching / (1 - switching)
    took = part * sum(own.values()) / piece.length
    each = sum(part * own[who] / span.turns[who] for who in own) * 2 * switch / piece.length
    most = (1 - took) * (long + short) * switch / (long * SLICE_NS + (long + short) * switch)
    return min(most, each) if long == 1 else switching


def _certain(pieces: Sequence[_Piece], span: Span) -> bool:
    """Whether one process had all that short launches left, and those took all other time first:
    whom the limiter made wait wants more than it gets."""
    long = {who for piece in pieces for who, _slot in piece.processes}
    short = [who for who, took in span.took.items() if took > 0]
    left = sum(piece.length for piece in pieces if not piece.processes)
    return (
        all(len(piece.processes) <= 1 for piece in pieces)
        and not long.intersection(short)
        and all(
            who in span.waited
            and span.took[who] * _beside(who, pieces) > _remaining(who, left, span)
            for who in short
        )
    )


def _taken(pieces: Sequence[_Piece], slices: Sequence[Mapping[Holder, float]], span: Span) -> float:
    """By short launches, while others had a long one there."""
    most = {
        who: min(took, sum(own.get(who, 0.0) for own in slices)) for who, took in span.took.items()
    }
    left: float = sum(piece.length for piece in pieces if not piece.processes)
    paced = {
        who: min(most[who], span.took[who] * _beside(who, pieces), _remaining(who, left, span))
        for who in span.waited.keys() & most.keys()
        if who not in span.turns or span.waited[who] > (span.until - span.since) / SELDOM
    }
    left -= sum(span.took[who] - took for who, took in paced.items())
    others = [who for who in most if who not in paced]
    least = sum(span.took[who] for who in others) - left
    in_turn = sum(
        min(most[who], own[who], piece.length * span.turns[who] / (SLICE_NS + span.turns[who]))
        for who in others
        for piece, own in zip(pieces, slices, strict=True)
        if who in span.turns and who in own and len(piece.processes) == 1
    )
    return sum(paced.values()) + min(max(in_turn, least), sum(most[who] for who in others))


def _remaining(who: Holder, left: float, span: Span) -> float:
    """At most so much was not of the time left over: that it took, or others did, or it waited."""
    others = sum(took for one, took in span.took.items() if one != who)
    return max(0.0, span.took[who] - max(0.0, left - others - span.waited[who]))


def _beside(who: Holder, pieces: Sequence[_Piece]) -> float:
    """The part of the time without a long launch of its own when others had one there, and it had
    its turn."""
    free = [piece for piece in pieces if not piece.has(who)]
    beside = [piece for piece in free if piece.processes and not piece.first]
    return sum(one.length for one in beside) / (sum(one.length for one in free) or 1)


def _slices(piece: _Piece, span: Span) -> Mapping[Holder, float]:
    """What those with short launches have while there is a long one, if they want all they can."""
    if piece.first or not piece.processes:
        return {}
    others = [who for who, took in span.took.items() if took > 0 and not piece.has(who)]
    return dict.fromkeys(others, piece.length / (len(piece.processes) + len(others)))
