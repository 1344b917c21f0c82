"""Rows as lines of text, for a terminal of any width: names, bars, figures. Pure.

A line is made of segments, each with a tone; what a tone looks like is the terminal's. Nothing is
said by a colour alone. A bar of memory is full at what may be used, a container's limit or the
GPU's size; a bar of time is the whole GPU, so that containers can be compared. In both, what is
granted and not used is shaded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gpumanager.units import count_of
from gpumanager.view.figures import count, cut, of_bytes, of_percent, seconds, size
from gpumanager.view.glyphs import Glyphs
from gpumanager.view.layout import ORDER, Layout
from gpumanager.view.listing import Row, Sort
from gpumanager.view.topology_tree import short_model
from gpumanager.view.values import ContainerRow, GpuRow

NEARLY: Final = 0.9
"""Of a limit: from here on it is worth a look."""
MUCH: Final = 50
"""Percent of the time throttled: from here on it is worth a look."""
EIGHTHS: Final = 8
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


def heading(
    columns: Layout, signs: Glyphs, sort: Sort = Sort.PLACE, *, turned: bool = False
) -> Line:
    """The names of the columns; the one that rows are sorted by is marked."""
    mark = signs.up if turned else signs.down

    def title(text: str, width: int, by: Sort | None = None, *, left: bool = False) -> Segment:
        text = f"{text}{mark}" if by is sort else text
        padded = cut(text, width, signs)
        return Segment(padded.ljust(width) if left else padded.rjust(width), Tone.HEAD)

    memory = columns.memory_bar + bool(columns.memory_bar) + columns.memory
    share = columns.share_bar + bool(columns.share_bar) + columns.share
    barred = bool(columns.memory_bar)
    found = [
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
    return _spaced([segment for width, segment in found if width])


def line(row: Row, columns: Layout, signs: Glyphs, before: ContainerRow | None = None) -> Line:
    """One row. before: the same container at the look before, to see what grows."""
    if row.gpu is None:
        return _node_line(row, columns, signs)
    drawn = (
        _container_line(row, row.container, columns, signs, before)
        if row.container
        else _gpu_line(row, row.gpu, columns, signs)
    )
    return tuple(Segment(one.text, Tone.DIM) for one in drawn) if row.seen.away else drawn


def _node_line(row: Row, columns: Layout, signs: Glyphs) -> Line:
    """Over the whole width: it has no figures of its own."""
    width = columns.width
    mark = signs.closed if row.folded else signs.opened
    seen, node = row.seen, row.seen.node
    said = f"{mark} {seen.name}"
    if node is not None:
        said += f"  {len(node.gpus)} GPUs, {node.containers} containers"
    if seen.trouble:
        text = cut(f"{said}  away: {seen.trouble}", width, signs)
        return (Segment(text, Tone.BAD),)
    return (Segment(cut(said, width, signs), Tone.STRONG),)


def _gpu_line(row: Row, gpu: GpuRow, columns: Layout, signs: Glyphs) -> Line:
    granted = gpu.memory_granted / gpu.memory if gpu.memory else 0
    used = (gpu.memory_used or 0) / gpu.memory if gpu.memory else 0
    cells = {
        "name": _gpu_name(row, gpu, columns, signs),
        "memory_bar": bar(columns.memory_bar, used, granted, signs),
        "memory": (_right(of_bytes(gpu.memory_used, gpu.memory), columns.memory, Tone.STRONG),),
        "share_bar": bar(columns.share_bar, (gpu.busy or 0) / 100, gpu.cores / 100, signs),
        "share": (_right(of_percent(gpu.busy, gpu.cores), columns.share, Tone.STRONG),),
        "celsius": (_right(_celsius(gpu, signs), columns.celsius, Tone.DIM),),
        "watts": (_right(_watts(gpu), columns.watts, Tone.DIM),),
    }
    return _cells(cells, columns)


def _gpu_name(row: Row, gpu: GpuRow, columns: Layout, signs: Glyphs) -> Line:
    """What is wrong with it comes before how warm it is, which has columns where there is room."""
    width = columns.name
    mark = signs.closed if row.folded else signs.opened
    model = short_model(gpu.model)
    if not gpu.healthy:
        ill = f" {gpu.unfit}"
        name = cut(f"{mark} {gpu.index} {model}", width - len(ill), signs)
        return (Segment(name, Tone.STRONG), Segment(ill.ljust(width - len(name)), Tone.BAD))
    head = cut(f"{mark} {gpu.index} {model}", width, signs)
    tail = "" if columns.celsius else f"{_celsius(gpu, signs)} {_watts(gpu)}".strip()
    tail = f" {tail}" if tail and len(head) + len(tail) < width else ""
    return (Segment(head, Tone.STRONG), Segment(tail.ljust(width - len(head)), Tone.DIM))


def _celsius(gpu: GpuRow, signs: Glyphs) -> str:
    return f"{gpu.celsius:.0f}{signs.degree.strip()}C" if gpu.celsius is not None else ""


def _watts(gpu: GpuRow) -> str:
    return f"{gpu.watts:.0f}W" if gpu.watts is not None else ""


def _container_line(
    row: Row, one: ContainerRow, columns: Layout, signs: Glyphs, before: ContainerRow | None
) -> Line:
    held = (one.held or 0) / one.limit if one.limit else 0
    taken = (one.taken or 0) / 100
    refused = Tone.PLAIN if not one.refusals else Tone.WARN
    cells = {
        "name": _container_name(row, one, columns.name, signs),
        "memory_bar": bar(
            columns.memory_bar, held, 1.0 if one.limit else 0, signs, warn=held >= NEARLY
        ),
        "memory": (_right(of_bytes(one.held, one.limit), columns.memory, _near(held)),),
        "share_bar": bar(columns.share_bar, taken, one.granted / 100, signs),
        "share": (_right(of_percent(one.taken, one.granted), columns.share),),
        "ceiling": (_right(_ceiling(one, signs), columns.ceiling),),
        "wait": (_right(_throttled(one), columns.wait, _much(one.throttled)),),
        "refusals": (
            _right(
                count(one.refusals),
                columns.refusals,
                Tone.BAD if _grew(one.refusals, before.refusals if before else None) else refused,
            ),
        ),
        "peak": (_right(size(one.peak), columns.peak),),
        "processes": (_right(count(one.processes), columns.processes),),
    }
    return _cells(cells, columns)


def _container_name(row: Row, one: ContainerRow, width: int, signs: Glyphs) -> Line:
    """Flat lists have no branches, but say which GPU it is."""
    index = row.gpu.index if row.gpu else 0
    joint = f"{index:2} " if row.flat else f"  {signs.end if row.last else signs.branch}"
    warning = " NO LIMIT" if width >= WARNED else " !"
    tail = warning if one.unlimited else ""
    left = width - len(joint) - len(tail)
    name = cut(_name(row, one, left), left, signs)
    padding = " " * (left - len(name))
    return Segment(joint, Tone.DIM), Segment(name), Segment(tail, Tone.BAD), Segment(padding)


def _name(row: Row, one: ContainerRow, width: int) -> str:
    """Where it is too long, without the container's: if it is its pod's only one on this GPU."""
    pod = (one.namespace, one.pod)
    others = [each for each in (row.gpu.containers if row.gpu else ()) if each is not one]
    alone = all((each.namespace, each.pod) != pod for each in others)
    return one.short if alone and len(one.name) > width else one.name


def _cells(cells: Mapping[str, Line], columns: Layout) -> Line:
    """One after another, in the order of the layout, each as wide as its column."""
    found: list[Segment] = []
    for name in ORDER:
        width = getattr(columns, name)
        if not width:
            continue
        if found:
            found.append(Segment(" "))
        found.extend(cells.get(name) or (Segment(" " * width),))
    return tuple(found)


def _spaced(segments: Sequence[Segment]) -> Line:
    found: list[Segment] = []
    for one in segments:
        found += [Segment(" "), one] if found else [one]
    return tuple(found)


def bar(width: int, used: float, granted: float, signs: Glyphs, *, warn: bool = False) -> Line:
    """used, granted: parts of the whole, of which more than 1 is cut."""
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


def _near(part: float) -> Tone:
    return Tone.WARN if part >= NEARLY else Tone.PLAIN


def _grew(now: float | None, before: float | None) -> bool:
    return now is not None and before is not None and now > before


def _throttled(one: ContainerRow) -> str:
    """Of the last seconds; where only one look is known, for how long since it started."""
    if one.throttled is None:
        return seconds(one.throttled_seconds)
    return f"{one.throttled:.0f}%"


def _much(percent: float | None) -> Tone:
    return Tone.WARN if (percent or 0) >= MUCH else Tone.PLAIN


def _ceiling(one: ContainerRow, signs: Glyphs) -> str:
    """Only where it may take more than it was granted."""
    return f"{signs.at_most}{one.ceiling:.0f}" if one.ceiling > one.granted else ""


def _right(text: str, width: int, tone: Tone = Tone.PLAIN) -> Segment:
    return Segment(text[:width].rjust(width), tone)


def plain(drawn: Line) -> str:
    return "".join(one.text for one in drawn)


def totals(gpus: Sequence[GpuRow], signs: Glyphs) -> str:
    """One sentence about GPUs: how many, how much of them is granted and used."""
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
