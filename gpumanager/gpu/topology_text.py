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
from dataclasses import dataclass, replace
from itertools import pairwise
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
_NVLINKS: Final = re.compile(r"NV([1-9][0-9]{0,2})")
_SELF: Final = ("X", "x")
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

    def error(self, cause: str) -> InputError:
        return InputError(self.source, cause, line=self.number)


@dataclass(frozen=True, slots=True)
class _Header:
    """devices: GPUs first, then network adapters. affinity: how many columns follow them."""

    line: _Line
    devices: tuple[str, ...]
    gpus: int
    affinity: int
    has_numa: bool


@dataclass(frozen=True, slots=True)
class _Row:
    """processors: near to the GPU, such as 0-15,32-47; empty where the text does not say."""

    line: _Line
    cells: tuple[str, ...]
    numa_node: int | None = None
    processors: str = ""


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
        if legend and words and _GPU.fullmatch(words[0]):
            raise line.error("a second table after the legend")
        if words and not legend:
            lines.append(line)
    if not lines:
        raise InputError(source, "empty: expected what `nvidia-smi topo -m` prints")
    first = next((n for n, line in enumerate(lines) if any(map(_GPU.match, line.words))), 0)
    header = _header(lines[first])
    rows = _rows(header, lines[first + 1 :])[: header.gpus]
    if not header.has_numa:
        rows = _nodes_by_processors(rows)
    bonds: list[list[Bond | None]] = [[None] * len(rows) for _ in rows]
    for a, row in enumerate(rows):
        for b, other in enumerate(rows[:a]):
            bonds[a][b] = _bond(row, other, row.cells[b])
            bonds[b][a] = _bond(other, row, other.cells[a])
            if bonds[a][b] != bonds[b][a]:
                raise row.line.error(
                    f"GPU{a} to GPU{b} is {row.cells[b]}, but GPU{b} to GPU{a} is {other.cells[a]}"
                )
    gpus = [
        Gpu(
            index=index,
            minor=index,
            uuid=GpuUUID(f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'gpu {index}')}"),
            bus_id=f"{(index + 1) // 256:08X}:{(index + 1) % 256:02X}:00.0",
            model=UNKNOWN_MODEL,
            memory=memory,
            numa_node=row.numa_node,
        )
        for index, row in enumerate(rows)
    ]
    return topology(gpus, bonds)


def _header(line: _Line) -> _Header:
    affinity = _AFFINITY.search(line.text.rstrip())
    devices = tuple(line.text[: affinity.start()].split() if affinity else line.words)
    gpus = sum(1 for name in devices if _GPU.fullmatch(name))
    if devices[:gpus] != tuple(f"GPU{index}" for index in range(gpus)) or not gpus:
        raise line.error("not a header: expected columns GPU0, GPU1, … in order")
    if any(name in _SELF for name in devices):
        raise line.error("not a header but the row of a device: the header above it is missing")
    if cut := _AFFINITY_WORDS.intersection(devices):
        raise line.error(f"the header is cut short at {min(cut)!r}")
    if len(set(devices)) != len(devices):
        raise line.error("the header names a device twice")
    numa, own = (bool(affinity and affinity[name]) for name in ("numa", "memory"))
    return _Header(line, devices, gpus, bool(affinity) + numa + own, numa)


def _rows(header: _Header, lines: Sequence[_Line]) -> list[_Row]:
    """Return one row for each device of the header, in its order."""
    rows: dict[str, _Row] = {}
    for line in lines:
        name, *words = line.words
        if name not in header.devices:
            raise line.error(f"a row for {name[:40]!r}, which the header does not name")
        if name in rows:
            raise line.error(f"a second row for {name}; the first is line {rows[name].line.number}")
        columns = len(header.devices)
        if len(words) < columns:
            raise line.error(
                f"{name} has {len(words)} cells, but the header names {columns} devices"
            )
        cells = tuple(words[:columns])
        for column, cell in zip(header.devices, cells, strict=True):
            if (cell in _SELF) != (name == column):
                expected = "X, itself" if name == column else f"not X: {column} is another device"
                raise line.error(f"{name} to {column} is {cell[:40]!r}, expected {expected}")
            if cell not in _LEVELS and cell not in _SELF and not _NVLINKS.fullmatch(cell):
                known = "NV1, NV2, …, PIX, PXB, PHB, NODE or SYS"
                raise line.error(f"{name} to {column} is {cell[:40]!r}, expected {known}")
        is_gpu = header.devices.index(name) < header.gpus
        rows[name] = _Row(line, cells, *_affinity(header, line, header.affinity if is_gpu else 0))
    for name in header.devices:
        if name not in rows:
            raise header.line.error(f"cut short: the header names {name}, but there is no such row")
    return [rows[name] for name in header.devices]


def _affinity(header: _Header, line: _Line, columns: int) -> tuple[int | None, str]:
    """Return a row's NUMA node and processors.

    None, and empty, where the driver left the cell empty (`N/A`), and for several nodes.
    """
    words = line.words[1 + len(header.devices) :]
    fields = [field.strip() for field in line.text.lstrip().split("\t")][1 + len(header.devices) :]
    if len(words) > columns:
        raise line.error("more cells than the header names")
    if len(words) < columns:
        # Virtual machines have empty affinity cells; a line that just ends is cut short.
        if len(fields) >= columns:
            words = [field or _UNKNOWN for field in fields[:columns]]
        elif words and set(words) == {_UNKNOWN}:
            words = [_UNKNOWN] * columns
        else:
            raise line.error(
                f"cut short: {len(words)} affinity cells, but the header names {columns}"
            )
    processors, node = [*words, _UNKNOWN, _UNKNOWN][:2]
    if processors != _UNKNOWN and not _RANGES.fullmatch(processors):
        raise line.error(f"CPU affinity is {processors[:40]!r}, expected processors such as 0-15")
    if not header.has_numa:
        node = _UNKNOWN
    if node != _UNKNOWN and not _RANGES.fullmatch(node):
        raise line.error(f"NUMA affinity is {node[:40]!r}, expected a node such as 0, or N/A")
    return int(node) if node.isdigit() else None, "" if processors == _UNKNOWN else processors


def _nodes_by_processors(rows: list[_Row]) -> list[_Row]:
    """Number the NUMA nodes by their first processor, where the sets of processors differ.

    One set for all means nothing: it is one node, or the driver does not know.
    Example: a DGX-1 has 0-19,40-59 for GPU0 to GPU3 and 20-39,60-79 for GPU4 to GPU7.
    """
    sets = {row.processors for row in rows}
    spans = []
    for text in sets - {""}:
        for part in text.split(","):  # of 0-2,8: 0 to 2, and 8 to 8
            first, _, last = part.partition("-")
            spans.append((int(first), int(last or first), text))
    spans.sort()
    overlap = any(last >= first for (_, last, _), (first, _, _) in pairwise(spans))
    if "" in sets or len(sets) == 1 or overlap:
        return rows
    order = list(dict.fromkeys(text for _, _, text in spans))
    return [replace(row, numa_node=order.index(row.processors)) for row in rows]


def _bond(row: _Row, other: _Row, cell: str) -> Bond:
    """Return a cell's bond. NV# hides the PCIe level: the loosest that the NUMA nodes allow."""
    if cell in _LEVELS:
        return Bond(_LEVELS[cell])
    together = row.numa_node is not None and row.numa_node == other.numa_node
    return Bond(Level.NODE if together else Level.SYS, int(cell.removeprefix("NV")))
