"""What a case is: who shares the GPU, what they launch, and what is due to each, when."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness import Tenant

from compute.metrics import window

KERNELS: Mapping[str, float] = {
    "10us": 1e-5,
    "50us": 5e-5,
    "1ms": 1e-3,
    "20ms": 2e-2,
    "150ms": 0.15,
    "500ms": 0.5,
}
PATTERNS = ("async", "sync", "burst", "graph", "streams", "processes")
SETTLING = 2.0
"""Seconds after a start that a steady share is not judged on."""

WHOLE_GPU = "blocks=264 threads=1024"
"""A grid that leaves no multiprocessor of the simulated GPU free."""

MOST_IN_A_BURST = 1000

GRAPHS: Mapping[str, int] = {"10us": 100, "50us": 20, "1ms": 10, "20ms": 5, "150ms": 3, "500ms": 2}
"""Kernels of one graph."""


@dataclass(frozen=True, slots=True)
class Bars:
    """What a phase is held to: mean error in points, percent delivered, seconds until settled.

    Judged from `skip` seconds after the phase's start. Settled: windows of `width` seconds within
    `tolerance` points; with `least`, not more than those below. A bar of None is not there.
    """

    error: float | None = 1.0
    delivered: float | None = 98.0
    settled: float | None = 1.0
    skip: float = SETTLING
    width: float = 0.5
    tolerance: float = 2.0
    least: bool = False


STEADY = Bars()


@dataclass(frozen=True, slots=True)
class Phase:
    """A time in which the shares due do not change. due: percent for each tenant with work."""

    name: str
    begin: float
    end: float
    due: Mapping[str, float]
    bars: Bars = STEADY


@dataclass(frozen=True, slots=True)
class Actor:
    """A tenant and when it works: from begin to end, which is by default the case's.

    text: for cuda-work, without its duration. unit: GPU seconds of the longest thing it launches.
    """

    name: str
    cores: int
    text: str
    unit: float
    begin: float = 0.0
    end: float | None = None
    ceiling: int | None = None
    processes: int = 1
    changes: tuple[tuple[float, int], ...] = ()

    @property
    def waits(self) -> bool:
        """True if it waits for each launch before the next."""
        return WORDS["sync"] in self.text.split()

    def tenant(self, seconds: float) -> Tenant:
        lasting = (self.end or seconds) - self.begin
        return Tenant(
            self.name,
            self.cores,
            f"{self.text} for={lasting:g}s",
            ceiling=self.ceiling,
            start=self.begin,
            processes=self.processes,
            changes=self.changes,
        )


@dataclass(frozen=True, slots=True)
class Case:
    """interval: seconds between two looks at the account."""

    name: str
    actors: tuple[Actor, ...]
    seconds: float
    phases: tuple[Phase, ...]
    interval: float = 0.1

    @property
    def unit(self) -> float:
        return max(actor.unit for actor in self.actors)

    @property
    def window(self) -> float:
        return window(self.unit)

    def tenants(self) -> tuple[Tenant, ...]:
        return tuple(actor.tenant(self.seconds) for actor in self.actors)


def actor(name: str, cores: int, kernel: str, pattern: str = "async", **more: Any) -> Actor:
    """A tenant that launches kernels of that length in one of the ways of PATTERNS."""
    length = KERNELS[kernel]
    if pattern == "graph":
        count = GRAPHS[kernel]
        text, unit = f"kernel={kernel} pattern=graph count={count}", length * count
    elif pattern == "burst":
        text, unit = bursts(cores, length)
    else:
        text, unit = f"kernel={kernel} {WORDS[pattern]}".strip(), length
    processes = 4 if pattern == "processes" else 1
    return Actor(name, cores, f"{text} {WHOLE_GPU}", unit, processes=processes, **more)


WORDS = {"async": "", "sync": "pattern=sync", "streams": "streams=4", "processes": ""}


def bursts(cores: int, length: float, demand: float = 0.8) -> tuple[str, float]:
    """Bursts that ask for about that part of the guarantee, some ten a second.

    Returns the pattern, and the seconds that one burst asks for.

    A window that shares are looked at in holds a whole number of them, so that where it begins does
    not matter. They are rarer if one kernel takes that, and more often if they would be very large.
    """
    share = demand * cores / 100
    count = min(max(1, round(share * 0.1 / length)), MOST_IN_A_BURST)
    width = window(count * length)
    every = width / max(1, round(width * share / (count * length)))
    words = f"kernel={length * 1e6:g}us pattern=burst count={count} every={every * 1e6:.0f}us"
    return words, count * length


def steady(name: str, *actors: Actor) -> Case:
    """All of them work all the time; judged after two seconds."""
    unit = max(one.unit for one in actors)
    width = window(unit)
    seconds = SETTLING + max(8.0, 2 * width)
    due = {one.name: float(one.cores) for one in actors}
    bars = Bars(settled=max(1.0, width), width=window(unit, least=0.5))
    return Case(name, actors, seconds, (Phase("", 0.0, seconds, due, bars),))


def due(begin: float, end: float, name: str = "", bars: Bars = STEADY, **shares: float) -> Phase:
    return Phase(name, begin, end, shares, bars)
