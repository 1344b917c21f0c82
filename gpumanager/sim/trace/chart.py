"""Allocation against load as SVG: one line for each policy, on a diagonal that none can pass.

Pure. Colours keep apart for colour-blind readers and have a second set for pages that are dark.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

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
FROM: Final = 80.0
"""Percent at which both axes begin: below, all policies place all."""


class Frame:
    """Where percents lie on the page."""

    def __init__(self, most_asked: float) -> None:
        self.most = max(most_asked, FROM + 10)

    def x(self, asked: float) -> float:
        return LEFT + (asked - FROM) / (self.most - FROM) * (WIDTH - LEFT - RIGHT)

    def y(self, allocated: float) -> float:
        return TOP + (100 - allocated) / (100 - FROM) * (HEIGHT - TOP - BOTTOM)


def chart(curves: Mapping[str, Curve]) -> str:
    """One SVG document. curves: by the name that is written at each."""
    frame = Frame(max((curve[-1][0] for curve in curves.values() if curve), default=100.0))
    body = "\n".join((*_axes(frame), *_lines(frame, curves), *_names(frame, curves)))
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' "
        f"font-family='Helvetica, Arial, sans-serif' font-size='12'>\n"
        f"<style>{STYLE}{_colours()}</style>\n"
        f"<rect class='page' width='{WIDTH}' height='{HEIGHT}'/>\n{body}\n</svg>\n"
    )


def _colours() -> str:
    light = "".join(f".l{at}{{stroke:{pair[0]}}}" for at, pair in enumerate(COLOURS))
    dark = "".join(f".l{at}{{stroke:{pair[1]}}}" for at, pair in enumerate(COLOURS))
    return f"{light}@media(prefers-color-scheme:dark){{{dark}}}"


def _axes(frame: Frame) -> Iterator[str]:
    yield _text(LEFT, 22, "GPUs given away (%) against GPUs asked for (%)", "font-size='14'")
    for percent in range(int(FROM), 101, 5):
        y = frame.y(percent)
        yield f"<path class='grid' d='M{LEFT} {y:.1f}H{WIDTH - RIGHT}'/>"
        yield _text(LEFT - 8, y + 4, str(percent), "text-anchor='end'")
    for percent in range(int(FROM), int(frame.most) + 1, 10):
        x = frame.x(percent)
        yield _text(x, HEIGHT - BOTTOM + 20, str(percent), "text-anchor='middle'")
    corner = frame.x(min(100, frame.most)), frame.y(min(100, frame.most))
    start = f"M{LEFT} {HEIGHT - BOTTOM}"
    yield f"<path class='most' fill='none' d='{start}L{corner[0]:.1f} {corner[1]:.1f}'/>"


def _lines(frame: Frame, curves: Mapping[str, Curve]) -> Iterator[str]:
    for number, curve in reversed(list(enumerate(curves.values()))):  # the first lies on top
        shown = [(x, y) for x, y in curve if x >= FROM and y >= FROM]
        points = "L".join(f"{frame.x(x):.1f} {frame.y(y):.1f}" for x, y in shown)
        if points:
            colour = f"class='l{number % len(COLOURS)}'"
            yield f"<path {colour} fill='none' stroke-width='1.8' d='M{points}'/>"


def _names(frame: Frame, curves: Mapping[str, Curve]) -> Iterator[str]:
    """At the right, as high as the lines end, none upon another."""
    ends = sorted(
        (frame.y(max(FROM, curve[-1][1])), number, f"{name} {curve[-1][1]:.1f}")
        for number, (name, curve) in enumerate(curves.items())
        if curve
    )
    before = float("-inf")
    for y, number, words in ends:
        before = max(y, before + 15)
        colour = f"class='l{number % len(COLOURS)}' stroke-width='3'"
        right = WIDTH - RIGHT + 6
        yield f"<path {colour} d='M{right} {before:.1f}h10'/>"
        yield _text(right + 16, before + 4, words)


def _text(x: float, y: float, words: str, more: str = "") -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' {more}>{escape(words)}</text>"
