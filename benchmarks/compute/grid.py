"""Which cases there are.

One tenant alone: six lengths of kernels, six ways to launch, nine guarantees. All pairs of two of
these occur, in 54 cases: guarantee number t and length number k meet in pattern t + k, modulo
six, which is a Latin square. Several tenants and steps are named one by one. What is lent:
compute.lending.
"""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from string import ascii_lowercase

from compute.cases import (
    KERNELS,
    PATTERNS,
    WHOLE_GPU,
    Actor,
    Case,
    actor,
    due,
    steady,
)
from compute.lending import FINE, lending

TARGETS = (10, 20, 30, 40, 50, 60, 70, 80, 90)
QUICK = (
    "one/50us/sync/10",
    "one/1ms/*/50",
    "one/150ms/*/90",
    "one/1ms+9ms/*",
    "two/30-70/1ms/async",
    "four/10-20-30-40/50us/async",
    "step/neighbour",
    "step/guarantee",
    "burst/take",
)
"""Patterns of names: the cases of --quick."""

REAL = (
    "one/50us/*/70",
    "one/1ms/*/50",
    "one/20ms/*/30",
    "two/30-60/*",
    "four/10-20-30-40/1ms/async",
    "step/neighbour",
    "burst/take",
)
"""The cases that --clock real repeats, if none are named."""


def cases() -> list[Case]:
    return [*alone(), *uneven(), *together(), *stepped(), *lending()]


def alone() -> Iterator[Case]:
    """The Latin square."""
    for t, target in enumerate(TARGETS):
        for k, kernel in enumerate(KERNELS):
            pattern = PATTERNS[(t + k) % len(PATTERNS)]
            yield steady(f"one/{kernel}/{pattern}/{target}", actor("a", target, kernel, pattern))


def uneven() -> Iterator[Case]:
    """One tenant whose launches are not all alike, or too small to fill the GPU."""
    yield steady("one/1ms+9ms/async/30", Actor("a", 30, f"kernel=1ms,9ms {WHOLE_GPU}", 9e-3))
    yield steady("one/30us+2ms/async/30", Actor("a", 30, f"kernel=30us,2ms {WHOLE_GPU}", 2e-3))
    small = "kernel=1ms streams=4 blocks=8"
    yield steady("one/1ms/small-streams/30", Actor("a", 30, small, 1e-3))


def crowd(guarantees: Sequence[int], *kinds: tuple[str, str]) -> list[Actor]:
    """Tenants a, b, c …, who launch as the kinds say in turn: kernel and pattern."""
    return [
        actor(name, cores, *kinds[number % len(kinds)])
        for number, (name, cores) in enumerate(zip(ascii_lowercase, guarantees, strict=False))
    ]


def together() -> Iterator[Case]:
    """Two, four and eight tenants who always have work."""
    pair, few, many = (30, 70), (10, 20, 30, 40), (12,) * 8
    kinds = (("50us", "async"), ("1ms", "async"), ("20ms", "async"), ("1ms", "sync"))
    for kind in kinds:
        yield steady(f"two/30-70/{'/'.join(kind)}", *crowd(pair, kind))
        yield steady(f"four/10-20-30-40/{'/'.join(kind)}", *crowd(few, kind))
    for kind in kinds[1:3]:
        yield steady(f"two/30-60/{'/'.join(kind)}", *crowd((30, 60), kind))
        yield steady(f"eight/12/{'/'.join(kind)}", *crowd(many, kind))
    lengths = [(kernel, "async") for kernel in ("10us", "1ms", "20ms", "150ms")]
    yield steady("four/10-20-30-40/mixed lengths", *crowd(few, *lengths))
    patterns = [("1ms", pattern) for pattern in ("graph", "burst", "sync", "processes")]
    yield steady("four/10-20-30-40/mixed patterns", *crowd(few, *patterns))
    yield steady("two/30-60/50us+20ms/async", *crowd((30, 60), ("50us", "async"), kinds[2]))
    yield steady("two/30-60/150ms+1ms/async", *crowd((30, 60), ("150ms", "async"), kinds[1]))


STARTS = (10, 30, 50, 90)


def stepped() -> Iterator[Case]:
    """Something changes: who was there keeps the guarantee, who comes gets it within a second."""
    for target in STARTS:
        one = actor("a", target, "1ms", begin=1.0)
        yield Case(f"step/start/{target}", (one,), 6.0, (due(1, 6, a=target),), FINE)
    neighbours = (actor("a", 30, "1ms"), actor("b", 70, "1ms", begin=6.0, end=12.0))
    phases = (
        due(0, 6, "alone", a=30),
        due(6, 12, "with b", a=30, b=70),
        due(12, 18, "alone again", a=30),
    )
    yield Case("step/neighbour", neighbours, 18.0, phases, FINE)
    changing = (actor("a", 20, "1ms", changes=((5.0, 60), (10.0, 10))),)
    phases = (due(0, 5, "20", a=20), due(5, 10, "to 60", a=60), due(10, 15, "to 10", a=10))
    yield Case("step/guarantee", changing, 15.0, phases, FINE)


def compared() -> list[Case]:
    """What the baselines are run on too. Each tenant is one process: they know no other."""
    mixed = [Actor("a", cores, f"kernel=30us,2ms {WHOLE_GPU}", 2e-3) for cores in (10, 30)]
    small = [actor("a", cores, "50us") for cores in (10, 30, 50)]
    return [
        *(steady(f"compare/50us/async/{one.cores}", one) for one in small),
        *(steady(f"compare/30us+2ms/async/{one.cores}", one) for one in mixed),
        steady("compare/150ms/sync/30", actor("a", 30, "150ms", "sync")),
        steady("compare/1ms/graph/30", actor("a", 30, "1ms", "graph")),
        steady("compare/1ms/async/30-70", *crowd((30, 70), ("1ms", "async"))),
    ]


def chosen(patterns: Sequence[str], among: Sequence[Case]) -> list[Case]:
    """Those whose name fits one of the patterns; all, if there are none."""
    if not patterns:
        return list(among)
    return [one for one in among if any(fnmatch(one.name, pattern) for pattern in patterns)]
