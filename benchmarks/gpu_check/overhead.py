"""What the shim costs: a launch by itself, and a workload of many small launches."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Final

from gpu_check.bench import patience, program
from gpu_check.clock import opened
from gpu_check.outcome import Finding, Lost, Verdict, passed_if
from gpu_check.place import WHOLE, Place
from gpu_check.player import player
from gpu_check.rates import rate_of
from gpu_check.shares import slowdown, spread

ROUNDS, CALLS = 150, 100
"""A hundred empty kernels are some 0.2 ms of the GPU's time: far from any limit."""

LAUNCH_SECONDS: Final = 20.0
LIMITED: Final = 99
TURNS: Final = 9
"""The first is for warming up: the host learns their code."""

SETTLE, WINDOW = 0.1, 0.3
STEP_SIZE, STEP_KERNELS = {"driver": 5000, "torch": 1000}, 100
"""Rounds of a kernel, and a network's width. 5000 rounds are some 20 us: a Python launches two
kernels in that time, so that neither it nor a short queue is what the GPU waits for. With kernels
of 4 us (an H100) it was, now and then, and a program seemed 27 % faster with the shim.
"""

LAUNCH_NS, LAUNCH_PART = 300.0, 0.2
WORKLOAD_PERCENT: Final = 5.0
"""What the shim may cost: so many ns of a launch, or that part of the driver's own; and so many
percent of a workload, in the median of its turns.
"""

CACHE: Final = 1 << 20
"""Bytes that are walked between two launches, as a program's own code and data are."""


async def of_a_launch(place: Place) -> AsyncIterator[Finding]:
    """The driver's function and the hook in one process, in turns; raises CheckFailed."""
    for cores in (WHOLE, LIMITED):
        for walked in (0, CACHE):
            room = await place.limit(cores)
            command: list[str | Path] = [
                program("launches", place.work),
                str(ROUNDS),
                str(CALLS),
                str(walked),
            ]
            lines = await place.lines(room, command, LAUNCH_SECONDS)
            if len(lines) != 2 * ROUNDS:
                raise Lost(f"{len(lines)} of {2 * ROUNDS} rounds were measured")
            place.require_books([room])
            limit = "no compute limit" if cores == WHOLE else f"limit {cores} %, unthrottled"
            yield launch_finding(f"{limit}, {'cold' if walked else 'hot'} caches", lines)


def launch_finding(about: str, lines: Sequence[str]) -> Finding:
    """lines: side, mean and slowest ns of a round, `driver 2100.0 4000.0`, `shim 2109.5 9000.0`; of
    which each two belong together.
    """
    rows = [line.split() for line in lines]
    sides = {name: [float(row[1]) for row in rows if row[0] == name] for name in ("driver", "shim")}
    slowest = {
        name: median(float(row[2]) for row in rows if row[0] == name) for name in ("driver", "shim")
    }
    added = [a - b for a, b in zip(sides["shim"], sides["driver"], strict=True)]
    low, high = spread(added)
    driver = median(sides["driver"])
    said = (
        f"{median(added):+.0f} ns ({low:+.0f} to {high:+.0f}) on {driver:.0f} ns; slowest of "
        f"{CALLS}: {slowest['shim']:.0f} ns, driver alone {slowest['driver']:.0f} ns"
    )
    figures = {
        "added_ns": median(added),
        "middle_half": [low, high],
        "driver_ns": driver,
        "slowest_ns": slowest,
    }
    bar = max(LAUNCH_NS, LAUNCH_PART * driver) * patience()
    found = passed_if(
        {f"a launch takes {bar:.0f} ns more at most": median(added) <= bar}, said, figures
    )
    return replace(found, about=about)


async def of_a_workload(place: Place, engine: str) -> AsyncIterator[Finding]:
    """Many small launches: in turns twice without the shim, with it, and with a limit too. Each is
    first, second, third and last as often as the others."""
    turns: list[list[float]] = []
    async with AsyncExitStack() as stack:
        clock = await stack.enter_async_context(opened(place.machine.gpu))
        limits = (await place.limit(WHOLE, room="a"), await place.limit(LIMITED, room="b"))
        players = await asyncio.gather(
            *(
                stack.enter_async_context(player(place, engine, room))
                for room in (None, None, *limits)
            )
        )
        for one in players:
            await one.load(STEP_SIZE[engine], STEP_KERNELS)
        for turn in range(TURNS):
            rates = [0.0] * len(players)
            for number in range(turn, turn + len(players)):
                which = number % len(players)
                rate = await rate_of(clock, players[which], SETTLE, WINDOW)
                rates[which] = rate.kernels
            turns.append(rates)
        place.require_books(limits)
    without, again, unlimited, limited = zip(*turns[1:], strict=True)
    yield workload_finding("no compute limit", unlimited, without, again)
    yield workload_finding(f"limit {LIMITED} %", limited, without, again)


def workload_finding(
    about: str, rates: Sequence[float], without: Sequence[float], again: Sequence[float]
) -> Finding:
    """again: a second program without the shim. What these two differ by, the measure is wrong by:
    it is lost if that is as much as the shim may cost. Rates are kernels, or steps, per second.
    """
    bar = WORKLOAD_PERCENT * patience()
    percent, low, high = slowdown([*rates, *rates], [*without, *again])
    alike, least, most = slowdown(again, without)
    said = (
        f"{percent:+.2f} % time ({low:+.2f} to {high:+.2f}), {len(rates)} turns; "
        f"two without the shim: {alike:+.2f} % ({least:+.2f} to {most:+.2f})"
    )
    figures = {
        "percent": percent,
        "middle_half": [low, high],
        "without_percent": alike,
        "without_middle_half": [least, most],
        "us": {
            side: [1e6 / rate for rate in row]
            for side, row in (("without", without), ("again", again), ("shim", rates))
        },
    }
    if abs(alike) > bar:
        said = f"the measure is off: two programs without the shim differ by as much: {said}"
        return Finding(Verdict.LOST, said, figures, about)
    found = passed_if(
        {f"it takes {WORKLOAD_PERCENT:g} % longer at most": percent <= bar}, said, figures
    )
    return replace(found, about=about)
