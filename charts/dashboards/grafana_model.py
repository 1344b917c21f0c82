"""What a dashboard shows, as values: rows of panels, each with its queries, unit and limits.

The words are Grafana's. Where a panel stands follows from the order and the widths: rows are filled
from left to right, 24 columns wide. How Grafana writes all this down is in `grafana_json`.
"""

from dataclasses import dataclass
from typing import Final

COLUMNS: Final = 24

Steps = tuple[tuple[str, float | None], ...]
"""Colours and the values from which they hold; the first has None."""

PLAIN: Final[Steps] = (("text", None),)
ZERO_IS_GOOD: Final[Steps] = (("green", None), ("red", 1))
FULL_IS_DEAR: Final[Steps] = (("green", None), ("orange", 0.85), ("red", 0.97))
IDLE_IS_DEAR: Final[Steps] = (("green", None), ("orange", 0.3), ("red", 0.6))


@dataclass(frozen=True, slots=True)
class Query:
    """legend: may name labels, `{{gpu}}`. dashed: a limit, drawn as such. color: else by itself."""

    expr: str
    legend: str = ""
    color: str = ""
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """help: what it says and what is good, in a sentence. most: of the axis, or of a bar."""

    title: str
    help: str
    width: int
    height: int = 8
    unit: str = "short"
    most: float | None = None
    decimals: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat(Panel):
    """One number, and its course behind it. texts: words for values."""

    query: Query
    steps: Steps = PLAIN
    texts: tuple[tuple[float, str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars(Panel):
    """One bar for each series, now."""

    query: Query
    steps: Steps = PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines(Panel):
    """Series over time. stacked: they add up. legend: `list`, or `table` with their values."""

    queries: tuple[Query, ...]
    stacked: bool = False
    legend: str = "list"


@dataclass(frozen=True, slots=True)
class Key:
    """A label by which the rows of a table are told apart. link: to a dashboard, by its uid.

    width: of a column without a link, in pixels; 0: as much as others have.
    """

    label: str
    title: str
    link: str = ""
    width: int = 0


@dataclass(frozen=True, slots=True)
class Column:
    """A value in each row. bar: drawn as one, up to `most`."""

    title: str
    expr: str
    unit: str = "short"
    bar: bool = False
    most: float = 1
    steps: Steps = PLAIN
    decimals: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Panel):
    """One row for each combination of the keys, which every column's query must come down to.

    by: the column by which it is sorted, the most first.
    """

    keys: tuple[Key, ...]
    columns: tuple[Column, ...]
    by: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """What a reader chooses. query: `label_values(…)`. several: or all of them."""

    name: str
    title: str
    query: str
    several: bool = False


@dataclass(frozen=True, slots=True)
class Board:
    """uid: by which others link to it, and by which an update replaces it."""

    uid: str
    title: str
    help: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    hours: int = 6
