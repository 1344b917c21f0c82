"""The list of GPUs and containers on the screen, whose cursor stays with its row."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gpumanager.view.drawing import layout, line
from gpumanager.view.figures import Glyphs
from gpumanager.view.listing import Row
from gpumanager.view.node import DeviceRow

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
        self._before: Mapping[str, DeviceRow] = {}
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

    def show(self, rows: Sequence[Row], before: Mapping[str, DeviceRow], empty: str = "") -> None:
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
            return Strip([Segment(said)]).adjust_cell_length(width)
        row = self._rows[place]
        drawn = line(row, layout(width), self._signs, self._before.get(row.key))
        strip = Strip(drawn.render(self.app.console)).adjust_cell_length(width)
        if place != self.position:
            return strip
        name, rest = strip.divide([layout(width)["name"], width])
        return Strip.join([name.apply_style(CURSOR), rest])

    def on_click(self, event: events.Click) -> None:
        self.move(event.y + self.scroll_offset.y - self.position)
