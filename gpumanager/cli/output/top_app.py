"""The living picture of `gpumanager top`: what is on the screen, and what the keys do.

A thread asks the agents; the screen shows what it brings. What an agent said last stays, dimmed,
while it is away.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from threading import Event, Thread
from typing import Any, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, Static

from gpumanager.cli.output.top_rows import RowsView
from gpumanager.view.drawing import NOBODY, details, heading, layout, summary
from gpumanager.view.figures import Glyphs, cut, seconds
from gpumanager.view.listing import Sort, Wish, rows
from gpumanager.view.node import DeviceRow, Seen
from gpumanager.view.throttling import ThrottlingHistory

Look = Callable[[Sequence[Seen]], Sequence[Seen]]

FOOT: Final = "h Help  / Filter  Enter Details  Space Fold  M P T R N Sort  q Quit"
SHORT_FOOT: Final = "h Help  / Filter  Space Fold  q Quit"

CSS: Final = """
Screen { background: ansi_default; color: ansi_default; }
#status, #summary, #heading, #foot { height: 1; width: 100%; background: ansi_default; }
#status { text-style: bold; }
#summary, #foot { text-style: dim; }
#details { height: auto; display: none; margin-top: 1; background: ansi_default; }
#needle { height: 1; border: none; padding: 0; display: none; background: ansi_default; }
#needle:focus { border: none; }
"""


class Sampled(Message):
    """A new picture of the nodes was taken."""

    def __init__(self, nodes: Sequence[Seen]) -> None:
        super().__init__()
        self.nodes = nodes


class TopApp(App[None]):
    """nodes: the first picture. ask: runs in a thread of its own, to bring the others."""

    CSS = CSS
    TITLE = "gpumanager top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS = [  # noqa: RUF012
        Binding("q,f10", "quit"),
        Binding("h,question_mark,f1", "help"),
        Binding("up,k", "move(-1)"),
        Binding("down,j", "move(1)"),
        Binding("pageup", "page(-1)"),
        Binding("pagedown", "page(1)"),
        Binding("home", "move(-1000000)"),
        Binding("end", "move(1000000)"),
        Binding("space,minus,plus,equals_sign", "fold"),
        Binding("enter", "details"),
        Binding("slash,backslash,f3,f4", "filter"),
        Binding("escape", "leave_filter"),
        Binding("M,m", "sort('MEMORY')"),
        Binding("P,p", "sort('SHARE')"),
        Binding("T,W,w", "sort('WAIT')"),
        Binding("R,r", "sort('REFUSALS')"),
        Binding("N,n", "sort('PLACE')"),
        Binding("less_than_sign,comma", "next_sort(-1)"),
        Binding("greater_than_sign,full_stop,f6", "next_sort(1)"),
        Binding("I,i", "turn('turned')"),
        Binding("t,f5", "turn('flat')"),
        Binding("e", "turn('idle')"),
        Binding("z,Z", "hold"),
    ]

    def __init__(
        self,
        nodes: Sequence[Seen],
        signs: Glyphs,
        sort: Sort = Sort.PLACE,
        ask: Callable[["TopApp"], None] = lambda _app: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(ansi_color=True)
        self._seen = tuple(nodes)
        self._throttling = ThrottlingHistory().with_sample(nodes)
        self._before: Mapping[str, DeviceRow] = {}
        self._wish = Wish(sort)
        self._signs = signs
        self._ask = ask
        self._clock = clock
        self._held = False

    def compose(self) -> ComposeResult:
        for name in ("status", "summary", "heading"):
            yield Static(id=name, markup=False)
        yield RowsView(self._signs)
        yield Static(id="details", markup=False)
        yield Input(id="needle", placeholder="show only rows with these letters", compact=True)
        yield Static(id="foot", markup=False)

    def on_mount(self) -> None:
        self._main.query_one(RowsView).focus()
        self._draw()
        Thread(target=self._ask, args=(self,), daemon=True).start()

    def on_resize(self, _event: Resize) -> None:
        self._draw()

    @property
    def _main(self) -> Screen[Any]:
        """Return the list's screen, whatever lies over it."""
        return self.screen_stack[0]

    # What comes from outside.

    def on_sampled(self, message: Sampled) -> None:
        if not self._held:
            self.show(message.nodes)

    def show(self, nodes: Sequence[Seen]) -> None:
        """Draw a new picture."""
        self._before = {row.key: row.device for row in rows(self._seen, Wish()) if row.device}
        self._throttling = self._throttling.with_sample(nodes)
        self._seen = self._throttling.rated(nodes)
        self._draw()

    # What is on the screen.

    def _draw(self) -> None:
        if not self._main.query(RowsView):
            return  # not composed yet
        width, wish = self.size.width, self._wish
        listed = rows(self._seen, wish)
        status = ["gpumanager top"]
        if self._held:
            status.append("held (z: go on)")
        if (away := next((node for node in self._seen if node.trouble), None)) is not None:
            age = seconds(max(0.0, self._clock() - away.at)) if away.node else "never"
            status.append(f"{away.name} away, last seen {age} ago: {away.trouble}; trying again")
        empty_text = NOBODY
        if wish.needle:
            status.append(f"only {wish.needle!r} (Esc: all)")
            empty_text = f"Nothing here matches {wish.needle!r}. Esc shows all."
        if not any(one.node and one.node.shares for one in self._seen):
            status.append(NOBODY)
        self._put("status", cut(f" {self._signs.dot} ".join(status), width, self._signs))
        self._put("summary", cut(summary(self._seen, self._signs), width, self._signs))
        titles = heading(layout(width), self._signs, wish.sort, turned=wish.turned)
        self._put("heading", titles)
        self._main.query_one(RowsView).show(listed, self._before, empty_text)
        self._put("foot", FOOT if len(FOOT) <= width else SHORT_FOOT[:width])
        self._draw_details()

    def _put(self, name: str, text: str | Text) -> None:
        self._main.query_one(f"#{name}", Static).update(text)

    def _draw_details(self) -> None:
        row = self._main.query_one(RowsView).row
        if self._main.query_one("#details").display and row is not None:
            self._put("details", "\n".join(details(row)))

    def on_rows_view_moved(self) -> None:
        self._draw_details()

    def _choose(self, wish: Wish) -> None:
        self._wish = wish
        self._draw()

    # What the keys do.

    def action_help(self) -> None:
        self.push_screen(Help(self._signs))

    def action_move(self, steps: int) -> None:
        self._main.query_one(RowsView).move(steps)

    def action_page(self, pages: int) -> None:
        view = self._main.query_one(RowsView)
        view.move(pages * view.page())

    def action_fold(self) -> None:
        """Fold the row; a container's folds the GPU that it is on."""
        row = self._main.query_one(RowsView).row
        if row is not None and not row.flat:
            below = f" {row.container.name}" if row.container else ""
            self._choose(self._wish.fold(row.key.removesuffix(below)))

    def action_details(self) -> None:
        shown = self._main.query_one("#details")
        shown.display = not shown.display
        self._draw_details()

    def action_sort(self, name: str) -> None:
        self._choose(self._wish.by(Sort[name]))

    def action_next_sort(self, step: int) -> None:
        self._choose(self._wish.next(step))

    def action_turn(self, name: str) -> None:
        turned: dict[str, Any] = {name: not getattr(self._wish, name)}
        self._choose(replace(self._wish, **turned))

    def action_hold(self) -> None:
        self._held = not self._held
        self._draw()

    def action_filter(self) -> None:
        needle = self._main.query_one("#needle", Input)
        needle.display, needle.value = True, self._wish.needle
        self._main.set_focus(needle)  # at once: the next letter is for it

    def on_input_changed(self, event: Input.Changed) -> None:
        self._choose(replace(self._wish, needle=event.value))

    def on_input_submitted(self) -> None:
        self._close_filter()

    def action_leave_filter(self) -> None:
        self._close_filter()
        self._choose(replace(self._wish, needle=""))

    def _close_filter(self) -> None:
        self._main.query_one("#needle").display = False
        self._main.set_focus(self._main.query_one(RowsView))


def watch(nodes: Sequence[Seen], interval: float, sort: Sort, signs: Glyphs, again: Look) -> None:
    """Show the screen until the reader leaves. again: brings a picture, given the one before."""
    over = Event()

    def sample(app: TopApp) -> None:
        latest = nodes
        while not over.wait(interval):
            latest = again(latest)
            app.post_message(Sampled(latest))

    try:
        TopApp(nodes, signs, sort, sample).run()
    finally:
        over.set()


HELP: Final = (
    ("Keys", ""),
    ("  {arrows} j k PgUp PgDn", "move; Home, End: to the first row, to the last"),
    ("  Enter", "all that is known of the row, below the list"),
    ("  Space - +", "fold a GPU or a node, and open it again"),
    ("  / \\ F3 F4", "show only rows with these letters; Esc: all again"),
    ("  M P T R N", "sort by memory, share, throttling, refusals, place"),
    ("  < > , .", "sort by the column before, or the next"),
    ("  I", "reverse the order"),
    ("  t F5", "containers under their GPUs, or all beside each other"),
    ("  e", "hide GPUs that no container has, or show them"),
    ("  z", "freeze or resume"),
    ("  h ? F1", "this help"),
    ("  q F10 Ctrl-C", "leave"),
    ("", ""),
    ("Columns", ""),
    ("  MEMORY", "used, of the limit or the GPU's size: the full bar"),
    ("  SHARE", "percent of time got, of granted; the bar is the GPU"),
    ("  {full} {granted} {free}", "in bars: used, granted and not used, neither"),
    ("  CEIL", "what it may take while others leave it"),
    ("  THR", "percent of the last seconds that it was throttled"),
    ("  REF", "how often it was refused memory at its limit"),
    ("  TEMP, POWER", "of the GPU, where there is room; else beside its name"),
    ("  -", "not reported by the driver"),
    ("", ""),
    ("Esc: back", ""),
)
FIRST: Final = 20
"""Width of the first column."""


def help_text(signs: Glyphs) -> str:
    lines = []
    for left, right in HELP:
        name = left.format(**asdict(signs))
        lines += [name] if len(name) > FIRST else []
        lines.append(f"{'' if len(name) > FIRST else name:{FIRST}} {right}".rstrip())
    return "\n".join(lines)


class Help(ModalScreen[None]):
    """Over the list, until a key is pressed."""

    BINDINGS = [("escape,q,h,question_mark,f1,enter,space", "dismiss", "Back")]  # noqa: RUF012
    CSS = """
    Help { align: center middle; background: ansi_default; }
    Help VerticalScroll { width: 100%; height: 100%; padding: 1 2; background: ansi_default;
                          scrollbar-size: 0 0; }
    Help Static { width: 100%; background: ansi_default; }
    """

    def __init__(self, signs: Glyphs) -> None:
        super().__init__()
        self._signs = signs

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(help_text(self._signs), markup=False)
