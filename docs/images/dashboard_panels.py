"""How each kind of panel is painted: a number, bars, lines, a table."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any, Final

from dashboard_answers import Panel, Series
from dashboard_words import STEPS, UNITS
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.textpath import TextPath
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, MultipleLocator

Place = tuple[float, float, float, float]
"""x, y from above, width, height."""

COLORS: Final = {"green": "#73BF69", "orange": "#FF9830", "red": "#F2495C", "blue": "#5794F2",
                 "purple": "#B877D9", "text": "#d5d6dc"}  # fmt: skip
CLASSIC: Final = ("#73BF69", "#F2CC0C", "#5794F2", "#FF9830", "#F2495C", "#B877D9", "#8AB8FF",
                  "#FFA6B0", "#37872D", "#C4162A")  # fmt: skip
TEXT: Final = "#d5d6dc"
FAINT: Final = "#8e909a"
EDGE: Final = "#2a2d33"
TRACK: Final = "#22252b"
LINK: Final = "#6e9fff"


WIDE: Final = 600


class Canvas:
    """A figure whose points are counted from the upper left, as a screen's are."""

    def __init__(self, figure: Figure, width: float, height: float) -> None:
        self.figure, self.width, self.height = figure, width, height
        self._plane = figure.add_axes((0, 0, 1, 1))
        self._plane.set_axis_off()
        self._plane.set_xlim(0, width)
        self._plane.set_ylim(height, 0)

    def box(self, x: float, y: float, w: float, h: float, fill: str, edge: str) -> None:  # noqa: PLR0917
        style = "round,pad=0,rounding_size=3"
        self._plane.add_patch(
            FancyBboxPatch((x, y), w, h, boxstyle=style, fc=fill, ec=edge, lw=0.7, zorder=0)
        )

    def bar(self, x: float, y: float, w: float, h: float, fill: str) -> None:
        self._plane.add_patch(Rectangle((x, y), max(w, 0), h, fc=fill, lw=0, zorder=1))

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 9.5,
        color: str = TEXT,
        weight: str = "normal",
        right: bool = False,
        middle: bool = False,
        width: float = 0,
    ) -> None:
        """y: of the line it stands on. width: what is longer is cut."""
        while width and len(text) > 1 and self.width_of(text, size) > width:
            text = text.rstrip("…")[:-1] + "…"
        side = "right" if right else "center" if middle else "left"
        self._plane.text(x, y, text, size=size * 0.76, color=color, weight=weight, ha=side,
                         va="baseline", zorder=3)  # fmt: skip

    def width_of(self, text: str, size: float) -> float:
        return float(TextPath((0, 0), text, size=size).get_extents().width) * 1.06 if text else 0

    def axes(self, place: Place) -> Any:
        x, y, w, h = place
        return self.figure.add_axes(
            (x / self.width, 1 - (y + h) / self.height, w / self.width, h / self.height)
        )


def color_of(thresholds: Mapping[str, Any], value: float) -> str:
    held = [one for one in thresholds["steps"] if one["value"] is None or value >= one["value"]]
    return COLORS[held[-1]["color"]]


def written(shown: Mapping[str, Any], value: float) -> str:
    return UNITS[shown.get("unit", "short")](value, shown.get("decimals"))


def stat(canvas: Canvas, panel: Panel, series: Sequence[Series], place: Place) -> None:
    x, y, w, h = place
    shown, one = panel["fieldConfig"]["defaults"], series[0]
    text, color = written(shown, one.last), color_of(shown["thresholds"], one.last)
    for mapping in shown["mappings"]:
        if said := mapping["options"].get(f"{one.last:g}"):
            text, color = said["text"], COLORS[said["color"]]
    if panel["options"]["graphMode"] == "area":
        _sparkline(canvas, one, color, (x - 10, y + h * 0.5, w + 20, h * 0.5 + 7))
    canvas.text(x + w / 2, y + h * 0.52, text, size=26, color=color, weight="bold", middle=True)


def _sparkline(canvas: Canvas, one: Series, color: str, place: Place) -> None:
    axes = canvas.axes(place)
    axes.set_axis_off()
    times, values = zip(*one.points, strict=True)
    low, high = min(values), max(values)
    span = (high - low) or abs(high) or 1
    floor = low - span
    axes.fill_between(times, floor, values, color=color, alpha=0.14, lw=0)
    axes.plot(times, values, color=color, lw=1, alpha=0.7)
    axes.set_xlim(times[0], times[-1] if len(times) > 1 else times[0] + 1)
    axes.set_ylim(floor, high + span * 0.6)


def bars(canvas: Canvas, panel: Panel, series: Sequence[Series], place: Place) -> None:
    x, y, w, h = place
    shown = panel["fieldConfig"]["defaults"]
    most = shown.get("max") or max(one.last for one in series) or 1
    name = max(canvas.width_of(one.name, 10) for one in series) + 12
    value = max(canvas.width_of(written(shown, one.last), 10) for one in series) + 14
    step = min(h / len(series), 46)
    for place_in_row, one in enumerate(series):
        top, long = y + place_in_row * step + 6, w - name - value
        middle = top + step / 2
        canvas.text(x, middle, one.name, size=10)
        canvas.bar(x + name, top, long, step - 12, TRACK)
        color = color_of(shown["thresholds"], one.last)
        canvas.bar(x + name, top, long * min(one.last / most, 1), step - 12, color)
        canvas.text(x + w, middle, written(shown, one.last), size=10, color=color, right=True)


def lines(canvas: Canvas, panel: Panel, series: Sequence[Series], place: Place) -> None:
    x, y, w, h = place
    shown = panel["fieldConfig"]["defaults"]
    drawn = _drawn(panel, series)
    legend = _legend(canvas, panel, drawn, place)
    axes = canvas.axes((x + 42, y, w - 46, h - legend - 22))
    axes.set_facecolor("none")
    _curves(axes, drawn, stacked=shown["custom"]["stacking"]["mode"] == "normal")
    axes.set_ylim(bottom=0, top=shown.get("max"))
    if not any(value for one, _, _ in drawn for _, value in one.points):
        axes.set_ylim(0, 1)
    axes.yaxis.set_major_locator(FixedLocator(_ticks(shown["unit"], *axes.get_ylim())))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: written(shown, value)))
    axes.xaxis.set_major_locator(MultipleLocator(60 if w > WIDE else 120))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: _clock(at)))
    axes.tick_params(colors=FAINT, labelsize=7, length=0, pad=3)
    axes.grid(visible=True, color=EDGE, lw=0.6)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)


def _ticks(unit: str, low: float, high: float) -> list[float]:
    """Round numbers, as they are written: of bytes those of the largest prefix."""
    scale = max((1 << shift for _, shift in STEPS if high >= 1 << shift), default=1)
    scale = scale if unit == "bytes" else 1
    found = MaxNLocator(5).tick_values(low / scale, high / scale)
    return [one * scale for one in found if low <= one * scale <= high * 1.001]


def _clock(at: float) -> str:
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%H:%M")


def _drawn(panel: Panel, series: Sequence[Series]) -> list[tuple[Series, str, bool]]:
    """Each with its colour, and whether it is dashed."""
    said = {
        one["matcher"]["options"]: {each["id"]: each["value"] for each in one["properties"]}
        for one in panel["fieldConfig"]["overrides"]
    }
    colors, found = cycle(CLASSIC), []
    for one in series:
        own = said.get(one.query, {})
        fixed = own.get("color", {}).get("fixedColor")
        found.append((one, COLORS[fixed] if fixed else next(colors), "custom.lineStyle" in own))
    return found


def _curves(axes: Any, drawn: Sequence[tuple[Series, str, bool]], *, stacked: bool) -> None:
    below: dict[float, float] = {}
    for one, color, dashed in drawn:
        times = [at for at, _ in one.points]
        floor = [below.get(at, 0.0) if stacked and not dashed else 0.0 for at in times]
        values = [under + value for under, (_, value) in zip(floor, one.points, strict=True)]
        axes.plot(times, values, color=color, lw=1.1, ls=(0, (6, 4)) if dashed else "-")
        if not dashed:
            axes.fill_between(
                times, floor, values, color=color, lw=0, alpha=0.3 if stacked else 0.07
            )
            below.update(zip(times, values, strict=True))
    every = [at for one, _, _ in drawn for at, _ in one.points]
    axes.set_xlim(min(every), max(*every, min(every) + 1))


def _legend(
    canvas: Canvas, panel: Panel, drawn: Sequence[tuple[Series, str, bool]], place: Place
) -> float:
    """Below the curves; its height."""
    x, y, w, h = place
    shown = panel["fieldConfig"]["defaults"]
    if panel["options"]["legend"]["displayMode"] == "table":
        return _legend_table(canvas, shown, drawn, place)
    rows, left = 1, x
    spots = []
    for one, color, _ in drawn:
        wide = canvas.width_of(one.name, 9) + 30
        if left + wide > x + w and left > x:
            rows, left = rows + 1, x
        spots.append((left, rows, one.name, color))
        left += wide
    for left, row, name, color in spots:
        line = y + h - (rows - row) * 17
        canvas.bar(left, line - 4, 12, 2.5, color)
        canvas.text(left + 17, line, name, size=9)
    return rows * 17


def _legend_table(
    canvas: Canvas,
    shown: Mapping[str, Any],
    drawn: Sequence[tuple[Series, str, bool]],
    place: Place,
) -> float:
    x, y, w, h = place
    high = (len(drawn) + 1) * 17
    top = y + h - high + 17
    for title, right in (("Last", x + w - 90), ("Max", x + w - 4)):
        canvas.text(right, top, title, size=9, color=LINK, right=True)
    for row, (one, color, _) in enumerate(drawn, start=1):
        line = top + row * 17
        canvas.bar(x, line - 4, 12, 2.5, color)
        canvas.text(x + 17, line, one.name, size=9, width=w - 220)
        canvas.text(x + w - 90, line, written(shown, one.last), size=9, right=True)
        most = max(value for _, value in one.points)
        canvas.text(x + w - 4, line, written(shown, most), size=9, right=True)
    return high


def table(canvas: Canvas, panel: Panel, series: Sequence[Series], place: Place) -> None:
    x, y, w, h = place
    organize = panel["transformations"][1]["options"]
    order, titles = list(organize["indexByName"]), organize["renameByName"]
    said = {
        one["matcher"]["options"]: {each["id"]: each["value"] for each in one["properties"]}
        for one in panel["fieldConfig"]["overrides"]
    }
    rows = _rows(series, order, panel, titles)
    weights = [2.6 if "custom.cellOptions" in said.get(titles[one], {}) else 1.5 for one in order]
    weights = [
        1.8 if not one.startswith("Value #") else n for one, n in zip(order, weights, strict=True)
    ]
    lefts = [x + w * sum(weights[:place_in]) / sum(weights) for place_in in range(len(order) + 1)]
    for column, name in enumerate(order):
        numeric = name.startswith("Value #")
        at = lefts[column + 1] - 10 if numeric else lefts[column]
        canvas.text(at, y + 14, titles[name], size=9.5, color=LINK, right=numeric)
    for number, row in enumerate(rows[: int((h - 22) / 27)]):
        top = y + 24 + number * 27
        canvas.bar(x - 10, top - 1, w + 20, 0.8, EDGE)
        for column, name in enumerate(order):
            box = (lefts[column], top, lefts[column + 1] - lefts[column] - 10, 26.0)
            _cell(canvas, box, row.get(name), said.get(titles[name], {}))


def _rows(
    series: Sequence[Series], order: Sequence[str], panel: Panel, titles: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Joined by their labels and sorted, as the panel says."""
    keys = [name for name in order if not name.startswith("Value #")]
    joined: dict[tuple[str, ...], dict[str, Any]] = {}
    for one in series:
        labels = {key: one.labels.get(key, "") for key in keys}
        row = joined.setdefault(tuple(labels.values()), dict(labels))
        row[f"Value #{one.query}"] = one.last
    rows = list(joined.values())
    for by in panel["options"]["sortBy"]:
        (name,) = [one for one in order if titles[one] == by["displayName"]]
        rows.sort(key=lambda row: row.get(name, -1.0), reverse=by["desc"])
    return rows


def _cell(canvas: Canvas, box: Place, value: Any, said: Mapping[str, Any]) -> None:
    x, y, w, h = box
    line = y + h * 0.68
    if value is None:
        return
    if isinstance(value, str):
        canvas.text(x, line, value, color=LINK if "links" in said else TEXT, width=w)
        return
    text = written(said, value)
    kind = said.get("custom.cellOptions", {}).get("type")
    color = color_of(said["thresholds"], value)
    if kind == "gauge":
        canvas.bar(x, y + 6, w - 58, h - 12, TRACK)
        canvas.bar(x, y + 6, (w - 58) * min(value / said["max"], 1), h - 12, color)
    canvas.text(x + w, line, text, color=color if kind else TEXT, right=True)


PAINTERS: Final[Mapping[str, Callable[[Canvas, Panel, Sequence[Series], Place], None]]] = {
    "stat": stat,
    "bargauge": bars,
    "timeseries": lines,
    "table": table,
}
