"""Which drawings there are, and how runs become lines.

`docs/shares.svg`: what shares look like over time. `docs/baselines.svg`: the same beside the usual
ways to limit. A point is the share in a fifth of a second around it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness import HarnessResult

from compute import metrics
from compute.cases import Actor, Case
from compute.drawing import Line, Panel, sheet
from compute.grid import STARTS

Point = tuple[float, float]

SMOOTH, PIECES = 0.2, 10
"""Seconds; or so many of the longest thing that is launched, if that is longer."""


def points(busy: Sequence[float], interval: float, one: Actor, end: float) -> list[Point]:
    width = metrics.steps(max(SMOOTH, PIECES * one.unit), interval)
    part = busy[round(one.begin / interval) : round(end / interval)]
    found = metrics.shares(part, interval, width * interval)
    return [(one.begin + (n + width / 2) * interval, share) for n, share in enumerate(found)]


def corners(case: Case, name: str) -> list[Point]:
    """What was due to a tenant, as the corners of steps."""
    spans = [(one.begin, one.end, one.due[name]) for one in case.phases if name in one.due]
    return [(time, due) for begin, end, due in spans for time in (begin, end)]


def lines(case: Case, played: HarnessResult, names: Mapping[str, str]) -> list[Line]:
    """One for each tenant; names: what each is called."""
    return [
        Line(
            names[one.name],
            points(played.busy[one.name], played.interval, one, one.end or case.seconds),
            corners(case, one.name),
        )
        for one in case.actors
    ]


def shares(played: Mapping[str, tuple[Case, HarnessResult]]) -> str:
    """The sheet of shares over time; played: by the case's name."""
    starts = [(target, *played[f"step/start/{target}"]) for target in STARTS]
    begun = [lines(case, run, {"a": f"{target} %"})[0] for target, case, run in starts]
    first = Panel("A tenant starts", "guaranteed 10, 30, 50 or 90 %; kernels of 1 ms", begun, 6.0)
    drawn = (
        (
            "step/neighbour",
            "A neighbour comes and goes",
            "guaranteed 30 and 70 %",
            {"a": "30 %", "b": "70 %"},
        ),
        ("step/guarantee", "The guarantee changes", "20, then 60, then 10 %", {"a": "guarantee"}),
        (
            "burst/take",
            "Idle share is lent, and given back",
            "30 % up to 90 %, and 60 %",
            {"a": "30 to 90 %", "b": "60 %"},
        ),
    )
    panels = [
        Panel(title, note, lines(*played[name], names), played[name][0].seconds)
        for name, title, note, names in drawn
    ]
    return sheet([first, *panels], columns=2)


SHOWN = (
    ("compare/50us/async/30", "50 µs kernels, queued ahead", "guaranteed 30 %"),
    ("compare/30us+2ms/async/30", "30 µs and 2 ms in turn", "guaranteed 30 %"),
    ("compare/150ms/sync/30", "150 ms kernels, each waited for", "guaranteed 30 %"),
    ("compare/1ms/graph/30", "Graphs of ten 1 ms kernels", "guaranteed 30 %"),
)
CALLED = {"shim": "this shim", "aimd": "AIMD", "delta": "proportional"}


def baselines(played: Mapping[str, Mapping[str, tuple[Case, HarnessResult]]]) -> str:
    """The sheet beside the usual ways; played: by the case's name, then by limiter."""
    return sheet([against(title, note, played[name]) for name, title, note in SHOWN], columns=2)


def against(title: str, note: str, runs: Mapping[str, tuple[Case, HarnessResult]]) -> Panel:
    """One tenant under several limiters; what was due is drawn once."""
    drawn = [
        replace(lines(*runs[limiter], {"a": name})[0], level=()) for limiter, name in CALLED.items()
    ]
    case, _ = runs["shim"]
    drawn[0] = replace(drawn[0], level=corners(case, "a"))
    return Panel(title, note, drawn, case.seconds)


def needed() -> list[str]:
    """Names of the cases that are drawn, besides those that are compared."""
    return [
        *(f"step/start/{target}" for target in STARTS),
        *("step/neighbour", "step/guarantee", "burst/take"),
    ]
