"""The rows of GPUs and containers: as text, and as the list on the screen, whose cursor stays
with its row."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.segment import Segment as Styled
from rich.style import Style
from rich.text import Text
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gpumanager.units import count_of
from gpumanager.view.drawing import Line, Tone, heading, layout, line, totals
from gpumanager.view.figures import Glyphs
from gpumanager.view.listing import Row, Sort, Wish, rows
from gpumanager.view.node import ContainerRow, Seen

STYLES: Final[Mapping[Tone, str]] = {
    Tone.PLAIN: "",
    Tone.DIM: "dim",
    Tone.STRONG: "bold",
    Tone.USED: "green",
    Tone.GRANTED: "blue",
    Tone.GOOD: "green",
    Tone.WARN: "yellow",
    Tone.BAD: "bold red",
    Tone.HEAD: "bold",
}
NOBODY: Final = "No container has a GPU here."


def styled(drawn: Line) -> Text:
    text = Text(no_wrap=True, end="")
    for one in drawn:
        text.append(one.text, STYLES[one.tone])
    return text


def table(nodes: Sequence[Seen], sort: Sort, signs: Glyphs, width: int) -> Iterator[Text]:
    """Yield the whole picture, once."""
    columns = layout(width)
    gpus = [gpu for one in nodes if one.node for gpu in one.node.gpus]
    yield Text(summary(nodes, signs)[:width], style="dim")
    yield styled(heading(columns, signs, sort))
    for row in rows(nodes, Wish(sort)):
        yield styled(line(row, columns, signs))
    if not any(gpu.containers for gpu in gpus):
        yield Text(NOBODY, style="dim")


def summary(nodes: Sequence[Seen], signs: Glyphs) -> str:
    """Return the container, and how much of all of it."""
    gpus = [gpu for one in nodes if one.node for gpu in one.node.gpus]
    who = nodes[0].name if len(nodes) == 1 else count_of(len(nodes), "node")
    said = f"{who} {signs.dot} {totals(gpus, signs)}"
    silent = [one.name for one in nodes if one.node and not one.away and not one.node.answers]
    return said + (f" {signs.dot} the driver does not answer" if silent else "")


CURSOR: Final = Style(reverse=True)
"""Of the name alone: bars keep their colours."""


class RowsView(ScrollView, can_focus=True, inherit_bindings=False):
    """Rows of one line each. ScrollView's own keys would move the view and leave the cursor behind;
    the cursor moves, and the view with it."""

    DEFAULT_CSS = """
    RowsView { height: 1fr; scrollbar-size: 0 0; background: ansi_default; }
    """

    class Moved(Message):
        """The cursor is on another row."""

    def __init__(self, signs: Glyphs, **options: Any) -> None:
        super().__init__(**options)
        self._signs = signs
        self._rows: Sequence[Row] = ()
        self._before: Mapping[str, ContainerRow] = {}
        self._key = ""
        self._empty = ""

    @property
    def row(self) -> Row | None:
        """Return the row that the cursor is on."""
        return self._rows[self.position] if self._rows else None

    @property
    def position(self) -> int:
        """Return the cursor's position; the first row where its own is gone."""
        return next((n for n, row in enumerate(self._rows) if row.key == self._key), 0)

    def show(
        self, rows: Sequence[Row], before: Mapping[str, ContainerRow], empty: str = ""
    ) -> None:
        """Show rows. before: the previous containers by the key of their row. empty: what
        to say where there are no rows."""
        self._empty = empty
        place = self.position
        if rows and all(row.key != self._key for row in rows):
            self._key = rows[min(place, len(rows) - 1)].key
        self._rows, self._before = rows, before
        self.virtual_size = Size(self.size.width, len(rows))
        self.refresh()

    def move(self, steps: int) -> None:
        if not self._rows:
            return
        place = min(max(0, self.position + steps), len(self._rows) - 1)
        self._key = self._rows[place].key
        self._reveal()
        self.refresh()
        self.post_message(self.Moved())

    def on_resize(self) -> None:
        """Keep the cursor's row visible: details below the list take some of its lines."""
        self._reveal()

    def _reveal(self) -> None:
        self.scroll_to_region(Region(0, self.position, 1, 1), animate=False)

    def page(self) -> int:
        """Return how many rows fit at once."""
        return max(1, self.size.height)

    def render_line(self, y: int) -> Strip:
        width, place = self.size.width, y + self.scroll_offset.y
        if place >= len(self._rows):
            said = self._empty if not self._rows and y == 0 else ""
            return Strip([Styled(said)]).adjust_cell_length(width)
        row = self._rows[place]
        drawn = line(row, layout(width), self._signs, self._before.get(row.key))
        parts = [Styled(one.text, Style.parse(STYLES[one.tone])) for one in drawn]
        strip = Strip(parts).adjust_cell_length(width)
        if place != self.position:
            return strip
        name, rest = strip.divide([layout(width).name, width])
        return Strip.join([name.apply_style(CURSOR), rest])

    def on_click(self, event: events.Click) -> None:
        self.move(event.y + self.scroll_offset.y - self.position)
