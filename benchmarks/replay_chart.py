"""Allocation against load as SVG: one line for each policy, on a diagonal that none can pass.

Pure. Colours keep apart for colour-blind readers and have a second set for pages that are dark.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from statistics import mean
from typing import Final

from gpumanager.sim.replay import Step

Curve = Sequence[tuple[float, float]]
"""Asked and allocated, percent of all GPUs."""

COLOURS: Final = (
    ("#2563eb", "#7cb0ff"), ("#c2410c", "#ff9d5c"), ("#0f766e", "#4fd1b5"), ("#7e22ce", "#cf9bff"),
    ("#a16207", "#f2c94c"), ("#be185d", "#ff8fb8"), ("#475569", "#b6c2d1"),
)  # fmt: skip
"""Of lines in turn, on light and on dark."""

STYLE: Final = (
    ".page{fill:#fff}text{fill:#475569}.grid{stroke:#e2e8f0}.most{stroke:#94a3b8}"
    "@media(prefers-color-scheme:dark){.page{fill:#0d1117}text{fill:#9aa7b5}"
    ".grid{stroke:#232c38}.most{stroke:#4b5868}}"
)
WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 56, 170, 40, 44
LATEST_START: Final = 80.0
LINE: Final = 15
"""From one name to the next."""


class Frame:
    """Where percents lie on the page. start: at which both axes begin; below, all is placed."""

    def __init__(self, ends: Sequence[tuple[float, float]]) -> None:
        lowest = min((allocated for _, allocated in ends), default=100.0)
        self.start = max(0.0, min(LATEST_START, 10 * (lowest // 10) - 10))
        self.most = max((self.start + 10, *(asked for asked, _ in ends)))
        self.step = 10 * math.ceil((self.most - self.start) / 100)

    def x(self, asked: float) -> float:
        return LEFT + (asked - self.start) / (self.most - self.start) * (WIDTH - LEFT - RIGHT)

    def y(self, allocated: float) -> float:
        return TOP + (100 - allocated) / (100 - self.start) * (HEIGHT - TOP - BOTTOM)


def draw(path: Path, runs: Mapping[str, Sequence[Sequence[Step]]]) -> None:
    """Write an SVG file. runs: of each policy the steps of each seed, which ask for as much."""
    curves = {}
    for name, of_policy in runs.items():
        # The mean of the runs at each whole percent asked, and where they end.
        whole = range(1, 1 + math.floor(min(steps[-1].asked for steps in of_policy)))
        points = [
            [next(step for step in steps if step.asked >= asked) for steps in of_policy]
            for asked in whole
        ]
        points.append([steps[-1] for steps in of_policy])
        curves[name] = [(mean(s.asked for s in p), mean(s.allocated for s in p)) for p in points]
    path.write_text(chart(curves), encoding="utf-8")


def chart(curves: Mapping[str, Curve]) -> str:
    """Return one SVG document. curves: by the name that is written at each."""
    frame = Frame([curve[-1] for curve in curves.values() if curve])
    rows = [_text(LEFT, 22, "GPUs allocated (%) against GPUs requested (%)", "font-size='14'")]
    for percent in range(int(frame.start), 101, 5 if frame.start >= LATEST_START else 10):
        y = frame.y(percent)
        rows.append(f"<path class='grid' d='M{LEFT} {y:.1f}H{WIDTH - RIGHT}'/>")
        rows.append(_text(LEFT - 8, y + 4, str(percent), "text-anchor='end'"))
    for percent in range(int(frame.start), int(frame.most) + 1, frame.step):
        x = frame.x(percent)
        rows.append(_text(x, HEIGHT - BOTTOM + 20, str(percent), "text-anchor='middle'"))
    corner = frame.x(min(100, frame.most)), frame.y(min(100, frame.most))
    start = f"M{LEFT} {HEIGHT - BOTTOM}"
    rows.append(f"<path class='most' fill='none' d='{start}L{corner[0]:.1f} {corner[1]:.1f}'/>")
    for number, curve in reversed(list(enumerate(curves.values()))):  # the first lies on top
        shown = [(x, y) for x, y in curve if min(x, y) >= frame.start]
        if points := "L".join(f"{frame.x(x):.1f} {frame.y(y):.1f}" for x, y in shown):
            colour = f"class='l{number % len(COLOURS)}'"
            rows.append(f"<path {colour} fill='none' stroke-width='1.8' d='M{points}'/>")
    body = "\n".join((*rows, *_names(frame, curves)))
    light = "".join(f".l{at}{{stroke:{pair[0]}}}" for at, pair in enumerate(COLOURS))
    dark = "".join(f".l{at}{{stroke:{pair[1]}}}" for at, pair in enumerate(COLOURS))
    colours = f"{light}@media(prefers-color-scheme:dark){{{dark}}}"
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' "
        f"font-family='Helvetica, Arial, sans-serif' font-size='12'>\n"
        f"<style>{STYLE}{colours}</style>\n"
        f"<rect class='page' width='{WIDTH}' height='{HEIGHT}'/>\n{body}\n</svg>\n"
    )


def _names(frame: Frame, curves: Mapping[str, Curve]) -> Iterator[str]:
    """Yield the names, at the right, as high as the lines end, none upon another."""
    ends = sorted(
        (frame.y(max(frame.start, curve[-1][1])), number, f"{name} {curve[-1][1]:.1f}")
        for number, (name, curve) in enumerate(curves.items())
        if curve
    )
    before = float("-inf")
    for place, (y, number, words) in enumerate(ends, start=1):
        lowest = HEIGHT - BOTTOM - LINE * (len(ends) - place)
        before = max(min(y, lowest), before + LINE)
        colour = f"class='l{number % len(COLOURS)}' stroke-width='3'"
        right = WIDTH - RIGHT + 6
        yield f"<path {colour} d='M{right} {before:.1f}h10'/>"
        yield _text(right + 16, before + 4, words)


def _text(x: float, y: float, words: str, more: str = "") -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' {more}>{escape(words)}</text>"
