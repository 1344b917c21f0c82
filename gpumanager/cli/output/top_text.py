"""What is drawn, as text with the styles of a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.text import Text

from gpumanager.units import count_of
from gpumanager.view.drawing import Line, Tone, heading, layout, line, totals
from gpumanager.view.figures import Glyphs
from gpumanager.view.listing import Sort, Wish, rows
from gpumanager.view.node import Seen

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
