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
    ".axis{stroke:#94a3b8}.span{fill:#f1f5f9}"
)
DARK_STYLE = (
    ".page{fill:#0d1117}.title,.label{fill:#e6edf3}.tick,.note{fill:#9aa7b5}"
    ".grid{stroke:#232c38}.axis{stroke:#4b5868}.span{fill:#161e29}"
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
    """spans: times to shade, each with a word for it."""

    title: str
    note: str
    lines: Sequence[Line]
    seconds: float
    spans: Sequence[tuple[float, float, str]] = ()

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
    yield f"<text class='title' x='{LEFT}' y='22' font-size='15' font-weight='600'>"
    yield f"{escape(panel.title)}</text>"
    yield f"<text class='note' x='{LEFT}' y='40'>{escape(panel.note)}</text>"
    yield from (span(panel, *one) for one in panel.spans)
    yield from axes(panel)
    for number, line in enumerate(panel.lines):
        yield from line_parts(panel, number, line)
    yield from names(panel)


def span(panel: Panel, begin: float, end: float, word: str) -> str:
    left, right = panel.x(begin), panel.x(end)
    top, bottom = panel.y(100), panel.y(0)
    box = f"x='{left:.1f}' y='{top}' width='{right - left:.1f}' height='{bottom - top}'"
    middle = (left + right) / 2
    return (
        f"<rect class='span' {box}/><text class='note' x='{middle:.1f}' y='{top + 14}' "
        f"text-anchor='middle'>{escape(word)}</text>"
    )


def axes(panel: Panel) -> Iterator[str]:
    right, times = WIDTH - RIGHT, ticks(panel.seconds)
    for percent in range(0, 101, 20):
        y, kind = panel.y(percent), "grid" if percent else "axis"
        text = f"{percent} %" if percent == 100 else f"{percent}"
        yield f"<path class='{kind}' d='M{LEFT} {y:.1f}H{right}'/>"
        yield f"<text class='tick' x='{LEFT - 7}' y='{y + 4:.1f}' text-anchor='end'>{text}</text>"
    for time in times:
        x, text = panel.x(time), f"{time} s" if time == times[-1] else f"{time}"
        yield f"<text class='tick' x='{x:.1f}' y='{HEIGHT - BOTTOM + 18}' text-anchor='middle'>"
        yield f"{text}</text>"


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
        line, colour = panel.lines[number], f"t{number % len(COLOURS)}"
        x = panel.x(line.points[-1][0]) if (y, number) in early else WIDTH - RIGHT
        yield f"<text class='{colour}' x='{x + 7:.1f}' y='{y + 4:.1f}'>{escape(line.name)}</text>"


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
