"""The help screen of `gpumanager top`."""

from typing import Final

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from gpumanager.view.figures import Glyphs

KEYS: Final = (
    ("{arrows} j k PgUp PgDn", "move; Home, End: to the first row, to the last"),
    ("Enter", "all that is known of the row, below the list"),
    ("Space - +", "fold a GPU or a node, and open it again"),
    ("/ \\ F3 F4", "show only rows with these letters; Esc: all again"),
    ("M P T R N", "sort by memory, share, throttling, refusals, place"),
    ("< > , .", "sort by the column before, or the next"),
    ("I", "reverse the order"),
    ("t F5", "containers under their GPUs, or all beside each other"),
    ("e", "hide GPUs that no container has, or show them"),
    ("z", "freeze or resume"),
    ("h ? F1", "this help"),
    ("q F10 Ctrl-C", "leave"),
)
LEGEND: Final = (
    ("MEMORY", "used, of the limit or the GPU's size: the full bar"),
    ("SHARE", "percent of time got, of granted; the bar is the GPU"),
    ("{full} {granted} {free}", "in bars: used, granted and not used, neither"),
    ("CEIL", "what it may take while others leave it"),
    ("THR", "percent of the last seconds that it was throttled"),
    ("REF", "how often it was refused memory at its limit"),
    ("TEMP, POWER", "of the GPU, where there is room; else beside its name"),
    ("-", "not reported by the driver"),
)
FIRST: Final = 18
"""Width of the first column."""


def help_text(signs: Glyphs) -> str:
    return "\n".join(
        ["Keys", *_rows(KEYS, signs), "", "Columns", *_rows(LEGEND, signs), "", "Esc: back"]
    )


def _rows(table: tuple[tuple[str, str], ...], signs: Glyphs) -> list[str]:
    found = []
    for left, right in table:
        name = left
        for glyph in ("arrows", "full", "granted", "free"):
            name = name.replace(f"{{{glyph}}}", getattr(signs, glyph))
        if len(name) > FIRST:
            found += [f"  {name}", f"  {'':{FIRST}} {right}"]
        else:
            found.append(f"  {name:{FIRST}} {right}")
    return found


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
