"""Rows as lines of text, for a terminal of any width: names, bars, figures. Pure.

A line is made of segments, each with a tone; what a tone looks like is the terminal's. Nothing is
said by a colour alone. A bar of memory is full at what may be used, a container's limit or the
GPU's size; a bar of time is the whole GPU, so that containers can be compared. In both, what is
granted and not used is shaded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from gpumanager.units import count_of
from gpumanager.view.figures import Glyphs, count, cut, of_bytes, of_percent, seconds, size
from gpumanager.view.listing import Row, Sort
from gpumanager.view.node import ContainerRow, GpuRow
from gpumanager.view.topology_tree import short_model

NEARLY: Final = 0.9
"""Of a limit: from here on it is worth a look."""
MUCH: Final = 50
"""Percent of the time throttled: from here on it is worth a look."""
EIGHTHS: Final = 8
UNHEALTHY: Final = "closed"
"""For new containers: it is unhealthy, or cordoned."""
WARNED: Final = 24
"""A column of names that is narrower has room for a sign, not for words."""


class Tone(Enum):
    """What a piece of a line is."""

    PLAIN = "plain"
    DIM = "dim"
    STRONG = "strong"
    USED = "used"
    GRANTED = "granted"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    HEAD = "head"


@dataclass(frozen=True, slots=True)
class Segment:
    text: str
    tone: Tone = Tone.PLAIN


Line = tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Widths of the columns on a terminal; 0: not shown. Between any two is a space."""

    name: int
    memory_bar: int = 0
    memory: int = 0
    share_bar: int = 0
    share: int = 0
    ceiling: int = 0
    wait: int = 0
    refusals: int = 0
    peak: int = 0
    processes: int = 0
    celsius: int = 0
    watts: int = 0

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(getattr(self, name) for name in ORDER)

    @property
    def width(self) -> int:
        """Return the width of a whole line."""
        shown = [one for one in self.widths if one]
        return sum(shown) + len(shown) - 1


ORDER: Final = (
    *("name", "memory_bar", "memory", "peak", "share_bar", "share"),
    *("ceiling", "wait", "refusals", "processes", "celsius", "watts"),
)
"""From left to right."""

TINY: Final = 34
NARROW: Final = 52
USUAL: Final = 76
EIGHTY: Final = 80
WIDE: Final = 108
MORE: Final = {"peak": 5, "processes": 4, "celsius": 4, "watts": 5}
"""Columns from WIDE on."""
LEAST_NAME, MOST_NAME = 8, 44
LEAST_BAR, MOST_BAR = 8, 24


def layout(width: int) -> Layout:
    """Choose the columns: below NARROW what matters most, bars from USUAL on, WIDE has all."""
    columns = Layout(0, memory=9)
    if width >= TINY:
        columns = replace(columns, share=8, refusals=4)
    if width >= NARROW:
        columns = replace(columns, ceiling=4, wait=5)
    if width >= USUAL:
        bars = min(MOST_BAR, LEAST_BAR + max(0, width - EIGHTY) // 4)
        columns = replace(columns, memory_bar=bars, share_bar=bars)
    if width >= WIDE:
        columns = replace(columns, **MORE)
    left = max(LEAST_NAME, width - columns.width - 1)
    return replace(columns, name=min(left, MOST_NAME))


def heading(
    columns: Layout, signs: Glyphs, sort: Sort = Sort.PLACE, *, turned: bool = False
) -> Line:
    """Return the names of the columns; the one that rows are sorted by is marked."""
    mark = signs.up if turned else signs.down

    def title(text: str, width: int, by: Sort | None = None, *, left: bool = False) -> Segment:
        text = f"{text}{mark}" if by is sort else text
        padded = cut(text, width, signs)
        return Segment(padded.ljust(width) if left else padded.rjust(width), Tone.HEAD)

    memory = columns.memory_bar + bool(columns.memory_bar) + columns.memory
    share = columns.share_bar + bool(columns.share_bar) + columns.share
    barred = bool(columns.memory_bar)
    titles = [
        (columns.name, title("GPU / CONTAINER", columns.name, Sort.PLACE, left=True)),
        (
            memory,
            title("MEMORY of limit" if barred else "MEMORY", memory, Sort.MEMORY, left=barred),
        ),
        (columns.peak, title("PEAK", columns.peak)),
        (share, title("SHARE of granted" if barred else "SHARE", share, Sort.SHARE, left=barred)),
        (columns.ceiling, title("CEIL", columns.ceiling)),
        (columns.wait, title("THR", columns.wait, Sort.WAIT)),
        (columns.refusals, title("REF", columns.refusals, Sort.REFUSALS)),
        (columns.processes, title("PROC", columns.processes)),
        (columns.celsius, title("TEMP", columns.celsius)),
        (columns.watts, title("POWER", columns.watts)),
    ]
    found: list[Segment] = []
    for width, segment in titles:
        if width:
            found += [Segment(" "), segment] if found else [segment]
    return tuple(found)


def line(row: Row, columns: Layout, signs: Glyphs, before: ContainerRow | None = None) -> Line:
    """Draw a row. before: the same container at the previous look, to see what grows."""
    if row.gpu is None:  # a node: over the whole width, as it has no figures of its own
        text = f"{signs.closed if row.folded else signs.opened} {row.seen.name}"
        if (node := row.seen.node) is not None:
            text += f"  {len(node.gpus)} GPUs, {node.containers} containers"
        if row.seen.trouble:
            text += f"  away: {row.seen.trouble}"
        tone = Tone.BAD if row.seen.trouble else Tone.STRONG
        return (Segment(cut(text, columns.width, signs), tone),)
    drawn = (
        _container_line(row, row.container, columns, signs, before)
        if row.container
        else _gpu_line(row, row.gpu, columns, signs)
    )
    return tuple(Segment(one.text, Tone.DIM) for one in drawn) if row.seen.away else drawn


def _gpu_line(row: Row, gpu: GpuRow, columns: Layout, signs: Glyphs) -> Line:
    granted = gpu.memory_granted / gpu.memory if gpu.memory else 0
    used = (gpu.memory_used or 0) / gpu.memory if gpu.memory else 0
    celsius = f"{gpu.celsius:.0f}{signs.degree.strip()}C" if gpu.celsius is not None else ""
    watts = f"{gpu.watts:.0f}W" if gpu.watts is not None else ""
    # What is wrong with it comes before how warm it is, which has columns where there is room.
    tail, tone = f" {UNHEALTHY}", Tone.BAD
    title = f"{signs.closed if row.folded else signs.opened} {gpu.index} {short_model(gpu.model)}"
    head = cut(title, columns.name - (0 if gpu.healthy else len(tail)), signs)
    if gpu.healthy:
        climate = "" if columns.celsius else f"{celsius} {watts}".strip()
        fits = climate and len(head) + len(climate) < columns.name
        tail, tone = f" {climate}" if fits else "", Tone.DIM
    cells = {
        "name": (
            Segment(head, Tone.STRONG),
            Segment(tail.ljust(columns.name - len(head)), tone),
        ),
        "memory_bar": bar(columns.memory_bar, used, granted, signs),
        "memory": (_right(of_bytes(gpu.memory_used, gpu.memory), columns.memory, Tone.STRONG),),
        "share_bar": bar(columns.share_bar, (gpu.busy or 0) / 100, gpu.cores / 100, signs),
        "share": (_right(of_percent(gpu.busy, gpu.cores), columns.share, Tone.STRONG),),
        "celsius": (_right(celsius, columns.celsius, Tone.DIM),),
        "watts": (_right(watts, columns.watts, Tone.DIM),),
    }
    return _cells(cells, columns)


def _container_line(
    row: Row, one: ContainerRow, columns: Layout, signs: Glyphs, before: ContainerRow | None
) -> Line:
    held = (one.held or 0) / one.limit if one.limit else 0
    near = Tone.WARN if held >= NEARLY else Tone.PLAIN
    granted = one.granted or 0
    burst = (one.ceiling or 0) > granted
    # Of the last seconds; where only one look is known, for how long since it started.
    rate, total = one.throttled, seconds(one.throttled_seconds)
    throttled = Tone.WARN if (rate or 0) >= MUCH else Tone.PLAIN
    refused = Tone.WARN if one.refusals else Tone.PLAIN
    width = columns.name
    # Flat lists have the GPU's index in the place of branches.
    gpu_index, on_gpu = (row.gpu.index, row.gpu.containers) if row.gpu else (0, ())
    joint = f"{gpu_index:2} " if row.flat else f"  {signs.end if row.last else signs.branch}"
    warning = " NO LIMIT" if width >= WARNED else " !"
    tail = warning if one.unlimited else ""
    left = width - len(joint) - len(tail)
    # A pod's only container on this GPU goes without its own name where there is no room.
    pod = (one.namespace, one.pod)
    alone = all((each.namespace, each.pod) != pod for each in on_gpu if each is not one)
    name = cut(one.short if alone and len(one.name) > left else one.name, left, signs)
    known = before.refusals if before else None
    if one.refusals is not None and known is not None and one.refusals > known:
        refused = Tone.BAD
    cells = {
        "name": (
            Segment(joint, Tone.DIM),
            Segment(name),
            Segment(tail, Tone.BAD),
            Segment(" " * (left - len(name))),
        ),
        "memory_bar": bar(
            columns.memory_bar, held, 1.0 if one.limit else 0, signs, warn=near is Tone.WARN
        ),
        "memory": (_right(of_bytes(one.held, one.limit), columns.memory, near),),
        "share_bar": bar(columns.share_bar, (one.taken or 0) / 100, granted / 100, signs),
        "share": (_right(of_percent(one.taken, one.granted), columns.share),),
        "ceiling": (_right(f"{signs.at_most}{one.ceiling}" if burst else "", columns.ceiling),),
        "wait": (_right(total if rate is None else f"{rate:.0f}%", columns.wait, throttled),),
        "refusals": (_right(count(one.refusals), columns.refusals, refused),),
        "peak": (_right(size(one.peak), columns.peak),),
        "processes": (_right(count(one.processes), columns.processes),),
    }
    return _cells(cells, columns)


def _cells(cells: Mapping[str, Line], columns: Layout) -> Line:
    """Put cells one after another, in the order of the layout, each as wide as its column."""
    found: list[Segment] = []
    for name in ORDER:
        width = getattr(columns, name)
        if not width:
            continue
        if found:
            found.append(Segment(" "))
        found.extend(cells.get(name) or (Segment(" " * width),))
    return tuple(found)


def bar(width: int, used: float, granted: float, signs: Glyphs, *, warn: bool = False) -> Line:
    """Draw a bar. used, granted: parts of the whole, of which more than 1 is cut."""
    if not width:
        return ()
    full, rest = divmod(round(_part(used) * width * EIGHTHS), EIGHTHS)
    filled = signs.full * full
    if signs.parts and rest:
        filled += signs.parts[rest - 1]
    elif rest * 2 >= EIGHTHS:
        filled += signs.full
    shaded = max(0, round(_part(granted) * width) - len(filled))
    free = width - len(filled) - shaded
    return (
        Segment(filled, Tone.WARN if warn else Tone.USED),
        Segment(signs.granted * shaded, Tone.GRANTED),
        Segment(signs.free * free, Tone.DIM),
    )


def _part(value: float) -> float:
    return min(1.0, max(0.0, value))


def _right(text: str, width: int, tone: Tone = Tone.PLAIN) -> Segment:
    return Segment(text[:width].rjust(width), tone)


def plain(drawn: Line) -> str:
    return "".join(one.text for one in drawn)


def totals(gpus: Sequence[GpuRow], signs: Glyphs) -> str:
    """Return a sentence about GPUs: how many, how much of them is granted and used."""
    free = sum(not gpu.cores for gpu in gpus)
    used = [gpu.memory_used for gpu in gpus if gpu.memory_used is not None]
    memory = sum(gpu.memory for gpu in gpus)
    pieces = [
        f"{count_of(len(gpus), 'GPU')}, {free} free",
        f"{sum(gpu.cores for gpu in gpus):.0f} of {100 * len(gpus)} % granted",
    ]
    if used or not gpus:
        pieces.append(f"{of_bytes(sum(used), memory)} used")
    else:
        granted = sum(gpu.memory_granted for gpu in gpus)
        pieces.append(f"{of_bytes(granted, memory)} granted")
    return f" {signs.dot} ".join(pieces)
