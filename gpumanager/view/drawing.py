"""Rows as lines of text, for a terminal of any width: names, bars, figures. Pure.

Nothing is said by a colour alone. A bar of memory is full at what may be used, a container's limit
or the GPU's size; a bar of time is the whole GPU, so that containers can be compared. In both, what
is granted and not used is shaded.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.text import Span, Text

from gpumanager.units import count_of, format_bytes
from gpumanager.view.figures import Glyphs, count, cut, of_bytes, of_percent, seconds, size
from gpumanager.view.listing import Row, Sort, Wish, rows
from gpumanager.view.node import ContainerRow, DeviceRow, GpuRow, Seen, short_model
from gpumanager.view.story import unlimited_sentences

NEARLY: Final = 0.9
"""Of a limit: from here on it is worth a look."""
MUCH: Final = 50
"""Percent of the time throttled: from here on it is worth a look."""
EIGHTHS: Final = 8
WARNED: Final = 24
"""A column of names that is narrower has room for a sign, not for words."""
BAD: Final = "bold red"
WARN: Final = "yellow"
NOBODY: Final = "No container has a GPU here."

Columns = Mapping[str, int]
"""Widths of the columns that are shown, from left to right. Between any two is a space."""
Piece = tuple[str, str]
"""A text and its style."""

TITLES: Final[Mapping[str, tuple[str, Sort | None]]] = {
    "name": ("GPU / CONTAINER", Sort.PLACE),
    "memory_bar": (" of limit", None),
    "memory": ("MEMORY", Sort.MEMORY),
    "peak": ("PEAK", None),
    "share_bar": (" of granted", None),
    "share": ("SHARE", Sort.SHARE),
    "ceiling": ("CEIL", None),
    "wait": ("THR", Sort.WAIT),
    "refusals": ("REF", Sort.REFUSALS),
    "processes": ("PROC", None),
    "celsius": ("TEMP", None),
    "watts": ("POWER", None),
}
"""From left to right, with what rows are sorted by there; a bar and its figures have one title."""

EIGHTY: Final = 80
LEAST_NAME, MOST_NAME = 8, 44
LEAST_BAR, MOST_BAR = 8, 24


def layout(width: int) -> Columns:
    """Choose the columns: on a narrow terminal what matters most, then bars, at last all."""
    bars = min(MOST_BAR, LEAST_BAR + max(0, width - EIGHTY) // 4)
    columns = {"memory": 9}
    for least, more in (
        (34, {"share": 8, "refusals": 4}),
        (52, {"ceiling": 4, "wait": 5}),
        (76, {"memory_bar": bars, "share_bar": bars}),
        (108, {"peak": 5, "processes": 4, "celsius": 4, "watts": 5}),
    ):
        columns |= more if width >= least else {}
    left = width - sum(columns.values()) - len(columns)
    columns["name"] = min(max(LEAST_NAME, left), MOST_NAME)
    return {name: columns[name] for name in TITLES if name in columns}


def heading(
    columns: Columns, signs: Glyphs, sort: Sort = Sort.PLACE, *, turned: bool = False
) -> Text:
    """Return the names of the columns; the one that rows are sorted by is marked."""
    mark = signs.up if turned else signs.down
    cells = []
    for name, width in columns.items():
        if not name.endswith("_bar"):
            (title, by), bar_name = TITLES[name], f"{name}_bar"
            if barred := bar_name in columns:
                title += TITLES[bar_name][0]
                width += columns[bar_name] + 1  # noqa: PLW2901
            text = cut(f"{title}{mark}" if by is sort else title, width, signs)
            cells.append(text.ljust(width) if barred or name == "name" else text.rjust(width))
    return Text(" ".join(cells), "bold", no_wrap=True, end="")


def line(row: Row, columns: Columns, signs: Glyphs, before: DeviceRow | None = None) -> Text:
    """Draw a row. before: the same container at the previous look, to see what grows."""
    text = Text(no_wrap=True, end="")
    opened = signs.closed if row.folded else signs.opened
    if row.gpu is None:  # a node: over the whole width, as it has no figures of its own
        name = f"{opened} {row.seen.name}"
        if (node := row.seen.node) is not None:
            names = {one.name for _, (one, _) in node.shares}
            name += f"  {len(node.gpus)} GPUs, {len(names)} containers"
        if row.seen.trouble:
            name += f"  away: {row.seen.trouble}"
        width = sum(columns.values()) + len(columns) - 1
        return text.append(cut(name, width, signs), BAD if row.seen.trouble else "bold")
    if row.container and row.device:
        cells = _container_cells(row, row.container, row.device, columns, signs)
        refusals = row.device.memory_refusals
        known = before.memory_refusals if before else None
        if refusals is not None and known is not None and refusals > known:
            cells["refusals"] = (count(refusals), BAD)
    else:
        cells = _gpu_cells(row.gpu, opened, columns, signs)
    for place, (column, width) in enumerate(columns.items()):
        text.append(" " if place else "")
        cell = cells.get(column, ("", ""))
        if isinstance(cell, tuple):
            text.append(cell[0][:width].rjust(width), cell[1])
        else:
            for piece in cell:
                text.append(*piece)
    if row.seen.trouble:  # what stands here was seen before
        text.spans = [Span(0, len(text), "dim")]
    return text


Cells = dict[str, Piece | list[Piece]]
"""By column; a single piece is put to the right."""


def _gpu_cells(gpu: GpuRow, opened: str, columns: Columns, signs: Glyphs) -> Cells:
    whole, width, bars = gpu.memory_bytes or 1, columns["name"], columns.get("memory_bar", 0)
    celsius = "" if gpu.temperature_celsius is None else f"{gpu.temperature_celsius:.0f}"
    celsius += f"{signs.degree.strip()}C" if celsius else ""
    watts = "" if gpu.power_watts is None else f"{gpu.power_watts:.0f}W"
    # What is wrong with it comes before how warm it is, which has columns where there is room.
    # Closed, for new containers: it is unhealthy, or cordoned.
    tail, style = " closed", BAD
    title = f"{opened} {gpu.index} {short_model(gpu.model)}"
    head = cut(title, width - (0 if gpu.healthy else len(tail)), signs)
    if gpu.healthy:
        climate = "" if "celsius" in columns else f"{celsius} {watts}".strip()
        fits = climate and len(head) + len(climate) < width
        tail, style = f" {climate}" if fits else "", "dim"
    used, granted = gpu.memory_used_bytes, gpu.cores_granted_percent
    return {
        "name": [(head, "bold"), (tail.ljust(width - len(head)), style)],
        "memory_bar": bar(bars, (used or 0) / whole, gpu.memory_granted_bytes / whole, signs),
        "memory": (of_bytes(used, gpu.memory_bytes), "bold"),
        "share_bar": bar(bars, (gpu.utilization_percent or 0) / 100, granted / 100, signs),
        "share": (of_percent(gpu.utilization_percent, granted), "bold"),
        "celsius": (celsius, "dim"),
        "watts": (watts, "dim"),
    }


def _container_cells(
    row: Row, one: ContainerRow, device: DeviceRow, columns: Columns, signs: Glyphs
) -> Cells:
    limit, granted = device.memory_limit_bytes or 0, device.share_granted_percent
    held = (device.held or 0) / limit if limit else 0
    near = WARN if held >= NEARLY else ""
    # Of the last seconds; where only one look is known, for how long since it started.
    rate = device.throttled
    wait = seconds(device.throttled_seconds) if rate is None else f"{rate:.0f}%"
    width, bars = columns["name"], columns.get("memory_bar", 0)
    # Flat lists have the GPU's index in the place of branches.
    joint = f"  {signs.end if row.last else signs.branch}"
    if row.flat and row.gpu:
        joint = f"{row.gpu.index:2} "
    tail = (" NO LIMIT" if width >= WARNED else " !") if one.unlimited_processes else ""
    left = width - len(joint) - len(tail)
    # A pod's only container on this GPU goes without its own name where there is no room.
    on_gpu = row.seen.node.on(row.gpu) if row.seen.node and row.gpu else []
    pod = (one.namespace, one.pod)
    alone = all((each.namespace, each.pod) != pod for each, _ in on_gpu if each is not one)
    name = cut(one.short if alone and len(one.name) > left else one.name, left, signs)
    return {
        "name": [(joint, "dim"), (name, ""), (tail, BAD), (" " * (left - len(name)), "")],
        "memory_bar": bar(bars, held, 1.0 if limit else 0, signs, near or "green"),
        "memory": (of_bytes(device.held, limit), near),
        "share_bar": bar(bars, (device.taken or 0) / 100, (granted or 0) / 100, signs),
        "share": (of_percent(device.taken, granted), ""),
        "ceiling": (f"{signs.at_most}{device.share_ceiling_percent}" if device.burst else "", ""),
        "wait": (wait, WARN if (rate or 0) >= MUCH else ""),
        "refusals": (count(device.memory_refusals), WARN if device.memory_refusals else ""),
        "peak": (size(device.memory_peak_bytes), ""),
        "processes": (count(device.processes), ""),
    }


def bar(
    width: int, used: float, granted: float, signs: Glyphs, style: str = "green"
) -> list[Piece]:
    """Draw a bar. used, granted: parts of the whole, of which more than 1 is cut."""
    used, granted = (min(1.0, max(0.0, part)) for part in (used, granted))
    full, rest = divmod(round(used * width * EIGHTHS), EIGHTHS)
    filled = signs.full * full
    if signs.parts and rest:
        filled += signs.parts[rest - 1]
    elif rest * 2 >= EIGHTHS:
        filled += signs.full
    shaded = max(0, round(granted * width) - len(filled))
    free = width - len(filled) - shaded
    return [(filled, style), (signs.granted * shaded, "blue"), (signs.free * free, "dim")]


def table(nodes: Sequence[Seen], sort: Sort, signs: Glyphs, width: int) -> Iterator[Text]:
    """Yield the whole picture, once."""
    columns = layout(width)
    yield Text(summary(nodes, signs)[:width], style="dim")
    yield heading(columns, signs, sort)
    for row in rows(nodes, Wish(sort)):
        yield line(row, columns, signs)
    if not any(one.node and one.node.shares for one in nodes):
        yield Text(NOBODY, style="dim")


def summary(nodes: Sequence[Seen], signs: Glyphs) -> str:
    """Return a sentence: whose GPUs, how many, how much of them is granted and used."""
    gpus = [gpu for one in nodes for gpu in one.gpus]
    known = [gpu.memory_used_bytes for gpu in gpus if gpu.memory_used_bytes is not None]
    amount, what = sum(known), "used"
    if gpus and not known:
        amount, what = sum(gpu.memory_granted_bytes for gpu in gpus), "granted"
    percent = sum(gpu.cores_granted_percent for gpu in gpus)
    pieces = [
        nodes[0].name if len(nodes) == 1 else count_of(len(nodes), "node"),
        f"{count_of(len(gpus), 'GPU')}, {sum(not gpu.cores_granted_percent for gpu in gpus)} free",
        f"{percent:.0f} of {100 * len(gpus)} % granted",
        f"{of_bytes(amount, sum(gpu.memory_bytes for gpu in gpus))} {what}",
    ]
    if any(one.node and not one.trouble and not one.node.driver_answers for one in nodes):
        pieces.append("the driver does not answer")
    return f" {signs.dot} ".join(pieces)


def details(row: Row) -> Iterator[str]:
    """Yield the lines about a node, a GPU or a container."""
    seen, gpu = row.seen, row.gpu
    if gpu is None:
        yield f"{seen.name}, agent at {seen.agent}"
        if seen.trouble:
            yield f"away: {seen.trouble}; what stands here was seen before"
        if seen.node is not None:
            driver = "answers" if seen.node.driver_answers else "is silent"
            yield f"agent {seen.node.version}; the driver {driver}"
            if seen.node.not_registered:
                yield f"the kubelet does not know of {', '.join(seen.node.not_registered)}"
        return
    if row.container is not None and row.device is not None:
        yield f"{row.container.name} on GPU {gpu.index} ({gpu.uuid})"
        yield from _container_details(row.container, row.device)
        return
    yield f"GPU {gpu.index}, {gpu.model}, {gpu.bus_id} ({gpu.uuid})"
    granted, used = _bytes(gpu.memory_granted_bytes), _bytes(gpu.memory_used_bytes)
    yield f"memory    {_bytes(gpu.memory_bytes)}, granted {granted}, used {used}"
    busy = _percent(gpu.utilization_percent)
    yield f"time      granted {gpu.cores_granted_percent:.0f} %, busy by the driver {busy}"
    if gpu.temperature_celsius is not None and gpu.power_watts is not None:
        yield (f"climate   {gpu.temperature_celsius:.0f} degrees Celsius, {gpu.power_watts:.0f} W")
    health = "in use" if gpu.healthy else "closed: no new container gets it"
    yield f"health    {health}; Xids since the agent's start: {sum(gpu.xid_errors.values())}"


def _container_details(one: ContainerRow, device: DeviceRow) -> Iterator[str]:
    if one.claim:
        shared = " for all of them together" if len(one.containers) > 1 else ""
        yield f"claim     {one.from_claim}{shared}"
    yield from (f"limits    {text}" for text in unlimited_sentences(one.unlimited_processes))
    measured = f"by the driver {_bytes(device.memory_measured_bytes)}"
    busy = f"busy by the driver {_percent(device.utilization_percent)}"
    if device.memory_used_bytes is None:
        yield f"memory    the whole GPU's; {measured}"
        yield f"time      the whole GPU's; {busy}"
        yield f"processes {device.processes:.0f}"
        return
    used = f"{_bytes(device.memory_used_bytes)} of {_bytes(device.memory_limit_bytes)}"
    yield f"memory    {used}, at most {_bytes(device.memory_peak_bytes)}, {measured}"
    burst = f", up to {device.share_ceiling_percent} %" if device.burst else ""
    granted = f"{device.share_granted_percent or 0} % granted{burst}"
    yield f"time      {_percent(device.share_percent)} of {granted}, {busy}"
    throttled, waited = device.launches_throttled or 0, seconds(device.throttled_seconds)
    now = "" if device.throttled is None else f", {device.throttled:.0f} % of the last seconds"
    yield f"launches  {device.launches or 0:,.0f}, {throttled:,.0f} throttled, {waited} in all{now}"
    refused = f"memory refused {device.memory_refusals or 0:,.0f} times"
    yield f"processes {device.processes:.0f}; {refused}"


def _percent(value: float | None) -> str:
    return "not told" if value is None else f"{value:.1f} %"


def _bytes(amount: int | None) -> str:
    return "not told" if amount is None else format_bytes(amount)
