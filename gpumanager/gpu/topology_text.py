"""The topology of a machine, read from the text of `nvidia-smi topo -m`.

The text is a square table: a header that names GPUs, then network adapters, then affinity columns;
one row for each device; a legend. Columns are parted by tabs or, once pasted somewhere, by spaces,
and the header is underlined with escape codes. What the text does not say is filled in: UUIDs are
derived from the index, minor numbers equal it, the memory is the caller's word. Older drivers
have no column of NUMA nodes: there, GPUs with different sets of processors are on different nodes.
Lines above the table that name no GPU, such as the prompt of a shell, are skipped.

A table that is cut short, or that contradicts itself, is refused: half a topology would place
containers wrongly without anybody noticing.
"""

import re
import sys
import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Final

from gpumanager.errors import InputError
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.units import Bytes

STDIN: Final = "-"
UNKNOWN_MODEL: Final = "GPU"
"""Of every GPU: the text names no product."""
LONGEST_TEXT: Final = 1 << 20
"""Bytes; the table of 64 GPUs has about 40,000."""

_LEVELS: Final = {
    "SYS": Level.SYS,
    "SOC": Level.SYS,  # as drivers before 384 called it
    "NODE": Level.NODE,
    "PHB": Level.PHB,
    "PXB": Level.PXB,
    "PIX": Level.PIX,
}
_SELF: Final = ("X", "x")
_CELL: Final = re.compile("|".join([*_SELF, *_LEVELS, "NV[1-9][0-9]{0,2}"]))
_UNKNOWN: Final = "N/A"
_ESCAPE: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_AFFINITY: Final = re.compile(
    r"\s+CPU\s+Affinity(?P<numa>\s+NUMA\s+Affinity)?(?P<memory>\s+GPU\s+NUMA\s+ID)?$"
)
_AFFINITY_WORDS: Final = frozenset({"CPU", "Affinity", "NUMA", "GPU", "ID"})
_RANGES: Final = re.compile(r"[0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?)*")
_GPU: Final = re.compile(r"GPU[0-9]+")


@dataclass(frozen=True, slots=True)
class _Line:
    """One line that says something, without escape codes."""

    source: str
    number: int
    text: str

    @property
    def words(self) -> list[str]:
        return self.text.split()

    def refuse(self, *checks: tuple[object, str]) -> None:
        """Raise InputError with the cause of the first check that is true."""
        for wrong, cause in checks:
            if wrong:
                raise InputError(self.source, cause, line=self.number)


def read_topology(path: str | Path, memory: Bytes) -> Topology:
    """Return the topology in a file, or on standard input for `-`; raises InputError."""
    source = "standard input" if str(path) == STDIN else str(path)
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == STDIN else Path(path).open("rb") as file:
            content = file.read(LONGEST_TEXT + 1)
    except (OSError, ValueError) as error:
        raise InputError(source, f"cannot be read: {getattr(error, 'strerror', error)}") from error
    if len(content) > LONGEST_TEXT:
        raise InputError(source, f"longer than {LONGEST_TEXT} bytes: not a topology")
    try:
        text = content.decode("utf-8-sig")  # Windows puts a mark before it
    except UnicodeDecodeError as error:
        raise InputError(source, "not text: expected what `nvidia-smi topo -m` prints") from error
    return parse_topology(text, memory, source)


def parse_topology(text: str, memory: Bytes, source: str) -> Topology:
    """Return the topology in `text`; every GPU has `memory`. Raises InputError on `source`."""
    lines: list[_Line] = []
    legend = False
    for number, raw in enumerate(text.splitlines(), start=1):
        line = _Line(source, number, _ESCAPE.sub("", raw))
        words = line.words
        legend = legend or "Legend:" in words
        again = legend and words and _GPU.fullmatch(words[0])
        line.refuse((again, "a second table after the legend"))
        if words and not legend:
            lines.append(line)
    if not lines:
        raise InputError(source, "empty: expected what `nvidia-smi topo -m` prints")
    first = next((n for n, line in enumerate(lines) if any(map(_GPU.match, line.words))), 0)
    header, below = lines[first], lines[first + 1 :]
    affinity = _AFFINITY.search(header.text.rstrip())
    devices = (header.text[: affinity.start()] if affinity else header.text).split()
    size = sum(1 for name in devices if _GPU.fullmatch(name))
    cut = sorted(_AFFINITY_WORDS.intersection(devices))[:1]
    header.refuse(
        (
            not size or devices[:size] != [f"GPU{index}" for index in range(size)],
            "not a header: expected columns GPU0, GPU1, … in order",
        ),
        (
            {*_SELF}.intersection(devices),
            "not a header but the row of a device: the header above it is missing",
        ),
        (cut, f"the header is cut short at {''.join(cut)!r}"),
        (len(set(devices)) != len(devices), "the header names a device twice"),
    )
    rows = _rows(header, devices, below)[:size]
    numa, own = (bool(affinity and affinity[name]) for name in ("numa", "memory"))
    near = [_affinity(row, len(devices), bool(affinity) + numa + own, numa=numa) for row in rows]
    nodes = [node for _, node in near]
    if not numa:
        nodes = _nodes_by_processors([processors for processors, _ in near])
    bonds: list[list[Bond | None]] = [[None] * size for _ in rows]
    for a, b in combinations(range(size), 2):
        there, back = rows[a].words[1 + b], rows[b].words[1 + a]
        bonds[a][b], bonds[b][a] = (_bond(cell, nodes[a], nodes[b]) for cell in (there, back))
        wrong = f"GPU{b} to GPU{a} is {back}, but GPU{a} to GPU{b} is {there}"
        rows[b].refuse((bonds[a][b] != bonds[b][a], wrong))
    gpus = [
        Gpu(
            index=index,
            minor=index,
            uuid=GpuUUID(f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'gpu {index}')}"),
            bus_id=f"{(index + 1) // 256:08X}:{(index + 1) % 256:02X}:00.0",
            model=UNKNOWN_MODEL,
            memory=memory,
            numa_node=node,
        )
        for index, node in enumerate(nodes)
    ]
    return topology(gpus, bonds)


def _rows(header: _Line, devices: Sequence[str], lines: Sequence[_Line]) -> list[_Line]:
    """Return one row for each device of the header, in its order."""
    rows: dict[str, _Line] = {}
    for line in lines:
        name, *cells = line.words
        line.refuse(
            (name not in devices, f"a row for {name[:40]!r}, which the header does not name"),
            (
                name in rows,
                f"a second row for {name}; the first is line {rows.get(name, line).number}",
            ),
            (
                len(cells) < len(devices),
                f"{name} has {len(cells)} cells, but the header names {len(devices)} devices",
            ),
        )
        for column, cell in zip(devices, cells, strict=False):
            itself = "X, itself" if name == column else f"not X: {column} is another device"
            said = f"{name} to {column} is {cell[:40]!r}, expected"
            line.refuse(
                ((cell in _SELF) != (name == column), f"{said} {itself}"),
                (not _CELL.fullmatch(cell), f"{said} NV1, NV2, …, PIX, PXB, PHB, NODE or SYS"),
            )
        adapter = not _GPU.fullmatch(name) and len(cells) > len(devices)
        line.refuse((adapter, "more cells than the header names"))
        rows[name] = line
    for name in devices:
        missing = f"cut short: the header names {name}, but there is no such row"
        header.refuse((name not in rows, missing))
    return [rows[name] for name in devices]


def _affinity(line: _Line, devices: int, columns: int, *, numa: bool) -> tuple[str, int | None]:
    """Return a row's processors, such as 0-15,32-47, and its NUMA node.

    Empty, and None, where the driver left the cell empty (`N/A`), and for several nodes.
    """
    words = line.words[1 + devices :]
    fields = [field.strip() for field in line.text.lstrip().split("\t")][1 + devices :]
    line.refuse((len(words) > columns, "more cells than the header names"))
    if len(words) < columns:
        # Virtual machines have empty affinity cells; a line that just ends is cut short.
        short = f"cut short: {len(words)} affinity cells, but the header names {columns}"
        line.refuse((len(fields) < columns and set(words) != {_UNKNOWN}, short))
        words = [field or _UNKNOWN for field in fields[:columns]] or [_UNKNOWN]
    processors, node = [*words, _UNKNOWN, _UNKNOWN][:2]
    node = node if numa else _UNKNOWN
    for what, said, example in (
        ("CPU", processors, "processors such as 0-15"),
        ("NUMA", node, "a node such as 0, or N/A"),
    ):
        wrong = said != _UNKNOWN and not _RANGES.fullmatch(said)
        line.refuse((wrong, f"{what} affinity is {said[:40]!r}, expected {example}"))
    return "" if processors == _UNKNOWN else processors, int(node) if node.isdigit() else None


def _nodes_by_processors(sets: Sequence[str]) -> list[int | None]:
    """Number the NUMA nodes by their first processor, where the sets of processors differ.

    One set for all means nothing: it is one node, or the driver does not know.
    Example: a DGX-1 has 0-19,40-59 for GPU0 to GPU3 and 20-39,60-79 for GPU4 to GPU7.
    """
    spans = []
    for text in {*sets} - {""}:
        for part in text.split(","):  # of 0-2,8: 0 to 2, and 8 to 8
            first, _, last = part.partition("-")
            spans.append((int(first), int(last or first), text))
    spans.sort()
    overlap = any(last >= first for (_, last, _), (first, _, _) in pairwise(spans))
    if "" in sets or len({*sets}) == 1 or overlap:
        return [None] * len(sets)
    order = list(dict.fromkeys(text for _, _, text in spans))
    return [order.index(text) for text in sets]


def _bond(cell: str, node: int | None, other: int | None) -> Bond:
    """Return a cell's bond. NV# hides the PCIe level: the loosest that the NUMA nodes allow."""
    if cell in _LEVELS:
        return Bond(_LEVELS[cell])
    together = node is not None and node == other
    return Bond(Level.NODE if together else Level.SYS, int(cell.removeprefix("NV")))
