"""Lines over time as SVG: a sheet of panels, each with its axes, lines and dashed levels.

Pure. Colours keep apart for colour-blind readers, and have a second set for pages that are dark.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

COLOURS = (("#2563eb", "#7cb0ff"), ("#c2410c", "#ff9d5c"), ("#0f766e", "#4fd1b5"),
           ("#7e22ce", "#cf9bff"))  # fmt: skip
"""Of lines in turn, on light and on dark."""

STYLE = (
    ".page{fill:#fff}.title,.label{fill:#0f172a}.tick,.note{fill:#475569}.grid{stroke:#e2e8f0}"
    ".axis{stroke:#94a3b8}"
)
DARK_STYLE = (
    ".page{fill:#0d1117}.title,.label{fill:#e6edf3}.tick,.note{fill:#9aa7b5}"
    ".grid{stroke:#232c38}.axis{stroke:#4b5868}"
)

FONT = "font-family='Helvetica, Arial, \"DejaVu Sans\", sans-serif'"
WIDTH, HEIGHT = 490, 290
"""Of one panel."""

LEFT, RIGHT, TOP, BOTTOM = 52, 92, 54, 38
"""Margins of the area in which lines are drawn; names of lines stand at the right."""


@dataclass(frozen=True, slots=True)
class Line:
    """points: time in seconds, percent. level: what was due, as (time, percent) corners.

    A line begins and ends with its tenant.
    """

    name: str
    points: Sequence[tuple[float, float]]
    level: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    note: str
    lines: Sequence[Line]
    seconds: float

    def x(self, time: float) -> float:
        return LEFT + time / self.seconds * (WIDTH - LEFT - RIGHT)

    def y(self, percent: float) -> float:
        return TOP + (1 - percent / 100) * (HEIGHT - TOP - BOTTOM)


def sheet(panels: Sequence[Panel], columns: int) -> str:
    """One SVG document."""
    rows = -(-len(panels) // columns)
    width, height = columns * WIDTH, rows * HEIGHT
    body = "\n".join(
        f"<g transform='translate({number % columns * WIDTH},{number // columns * HEIGHT})'>"
        + "\n".join(panel_parts(panel))
        + "</g>"
        for number, panel in enumerate(panels)
    )
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' {FONT} "
        f"font-size='12'>\n<style>{style()}</style>\n"
        f"<rect class='page' width='{width}' height='{height}'/>\n{body}\n</svg>\n"
    )


def style() -> str:
    light, dark = colour_rules(0), colour_rules(1)
    return f"{STYLE}{light}@media(prefers-color-scheme:dark){{{DARK_STYLE}{dark}}}"


def colour_rules(column: int) -> str:
    return "".join(
        f".l{number}{{stroke:{pair[column]}}}.t{number}{{fill:{pair[column]}}}"
        for number, pair in enumerate(COLOURS)
    )


def panel_parts(panel: Panel) -> Iterator[str]:
    yield text("title", LEFT, 22, panel.title, "font-size='15' font-weight='600'")
    yield text("note", LEFT, 40, panel.note)
    yield from axes(panel)
    for number, line in reversed(list(enumerate(panel.lines))):  # the first lies on top
        yield from line_parts(panel, number, line)
    yield from names(panel)


def text(kind: str, x: float, y: float, words: str, more: str = "") -> str:
    return f"<text class='{kind}' x='{x:.1f}' y='{y:.1f}' {more}>{escape(words)}</text>"


def axes(panel: Panel) -> Iterator[str]:
    right, times = WIDTH - RIGHT, ticks(panel.seconds)
    for percent in range(0, 101, 20):
        y, kind = panel.y(percent), "grid" if percent else "axis"
        words = f"{percent} %" if percent == 100 else f"{percent}"
        yield f"<path class='{kind}' d='M{LEFT} {y:.1f}H{right}'/>"
        yield text("tick", LEFT - 7, y + 4, words, "text-anchor='end'")
    for time in times:
        words = f"{time} s" if time == times[-1] else f"{time}"
        yield text("tick", panel.x(time), HEIGHT - BOTTOM + 18, words, "text-anchor='middle'")


def ticks(seconds: float) -> range:
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100) if seconds / step <= 6)
    return range(0, int(seconds) + 1, step)


def path(panel: Panel, points: Sequence[tuple[float, float]]) -> str:
    places = [f"{panel.x(time):.1f} {panel.y(min(percent, 100)):.1f}" for time, percent in points]
    return "M" + "L".join(places)


def line_parts(panel: Panel, number: int, line: Line) -> Iterator[str]:
    colour = f"class='l{number % len(COLOURS)}' fill='none'"
    if line.level:
        where = path(panel, line.level)
        yield f"<path {colour} d='{where}' stroke-dasharray='2 4' opacity='.8'/>"
    where = path(panel, line.points)
    yield f"<path {colour} d='{where}' stroke-width='1.8' stroke-linejoin='round'/>"


def names(panel: Panel) -> Iterator[str]:
    """At the right, as high as lines end, none upon another; or where a line ends early."""
    last = max(line.points[-1][0] for line in panel.lines)
    ends = [(panel.y(ending(line)), number) for number, line in enumerate(panel.lines)]
    early = [end for end in ends if panel.lines[end[1]].points[-1][0] < last]
    late = sorted(end for end in ends if end not in early)
    for y, number in (*early, *apart(late, 15)):
        line = panel.lines[number]
        x = panel.x(line.points[-1][0]) if (y, number) in early else WIDTH - RIGHT
        yield text(f"t{number % len(COLOURS)}", x + 7, y + 4, line.name)


def ending(line: Line) -> float:
    """Where its name belongs: the mean of its last fifth."""
    last = line.points[-max(1, len(line.points) // 5) :]
    return min(100.0, sum(percent for _, percent in last) / len(last))


def apart(places: Sequence[tuple[float, int]], least: float) -> Iterator[tuple[float, int]]:
    """Moved down where they would touch."""
    before = float("-inf")
    for y, number in places:
        before = max(y, before + least)
        yield before, number
