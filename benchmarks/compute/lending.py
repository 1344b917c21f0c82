"""The cases of burst mode: what one tenant leaves idle is lent to another, and given back.

Judged as it is guaranteed: the borrower has the idle share within half a second, the lender has its
own again, or more, within a fifth of one from when it begins to work: what it saved up while it was
idle it has at once. Windows are a fifth of a second wide, or twenty kernels: a kernel that has been
launched is not taken back, and one more or less of 20 ms is ten points of a fifth of a second.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from compute.cases import Bars, Case, Phase, actor, due
from compute.metrics import window

FINE = 0.02
"""Seconds between two looks where the time to settle is the point."""

TAKEN = Bars(error=None, delivered=95, settled=0.5, skip=0.5, width=0.2, tolerance=5)
BACK = Bars(error=None, delivered=98, settled=0.2, skip=0.5, width=0.2, tolerance=5)
"""Idle share: taken up within half a second, given back within a fifth of one."""

KINDS = tuple(product(("50us", "1ms", "20ms"), ("async", "sync")))
WIDTH, PIECES = 0.2, 20
"""Seconds of a window, or so many kernels if those take longer."""


def lending() -> Iterator[Case]:
    yield from bursting()
    for number, (borrower, lender) in enumerate(product(KINDS, KINDS)):
        yield lent(borrower, lender, number)


def bursting() -> Iterator[Case]:
    pair = (
        actor("a", 30, "1ms", ceiling=90),
        actor("b", 60, "1ms", begin=5.0, end=10.0),
    )
    phases = (
        due(0, 5, "b idle", TAKEN, a=90),
        due(5, 10, "b wants it", BACK, a=40, b=60),
        due(10, 15, "b gone", TAKEN, a=90),
    )
    yield Case("burst/take", pair, 15.0, phases, FINE)
    hungry = (actor("a", 10, "1ms", ceiling=100), actor("b", 30, "1ms", ceiling=100))
    yield Case("burst/weights", hungry, 10.0, (due(0, 10, "", TAKEN, a=25, b=75),), FINE)


def lent(borrower: tuple[str, str], lender: tuple[str, str], number: int) -> Case:
    """A borrower of 30 % and a lender of 60; up to 90 and up to 100 in turn. The lender begins at
    another moment between two looks of the manager in each case."""
    ceiling = (90, 100)[(number + number // len(KINDS)) % 2]
    begin = 2.0 + FINE * (number % 5)
    back, end = begin + 2.0, begin + 4.0
    one = actor("a", 30, *borrower, ceiling=ceiling)
    other = actor("b", 60, *lender, begin=begin, end=back)
    taken = replace(TAKEN, width=window(one.unit, WIDTH, PIECES))
    given = replace(BACK, least=True, width=window(other.unit, WIDTH, PIECES))
    phases: tuple[Phase, ...] = (
        due(0, begin, "taken", taken, a=ceiling),
        due(begin, back, "back", given, a=30, b=60),
        due(back, end, "taken again", taken, a=ceiling),
    )
    name = f"lent/{' '.join(borrower)} from {' '.join(lender)}/{ceiling}"
    return Case(name, (one, other), end, phases, FINE)
