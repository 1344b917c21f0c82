"""The topology as a tree for people: which GPUs share a switch, bridge, socket.

A group holds the GPUs that are joined by bonds of at least its level. Levels that separate nobody
are left out. NVLinks run across the tree and are listed below it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from gpumanager.gpu.values import Level, Topology
from gpumanager.units import format_bytes

Group = tuple[int, ...]

_TITLES: Final = {
    Level.SYS: "across sockets (SYS)",
    Level.NODE: "NUMA node (NODE)",
    Level.PHB: "host bridge (PHB)",
    Level.PXB: "PCIe switches (PXB)",
    Level.PIX: "PCIe switch (PIX)",
    Level.BOARD: "board",
}
_LEVELS: Final = tuple(sorted(Level))


@dataclass(frozen=True, slots=True)
class Branch:
    """members: positions of its GPUs. level: the tightest that joins all; None: it is one GPU."""

    members: Group
    level: Level | None = None
    below: tuple["Branch", ...] = ()

    @property
    def title(self) -> str:
        return "GPU" if self.level is None else _TITLES[self.level]


@dataclass(frozen=True, slots=True)
class Island:
    """GPUs joined by NVLinks. least, most: how many any two of them have; least may be 0."""

    members: Group
    least: int
    most: int


def render_tree(topology: Topology) -> str:
    """Return the tree, one GPU a line; always the same text for the same topology."""
    text = ["machine", *_drawn(topology, branches(topology), "")]
    gpus = topology.gpus
    pairs = list(combinations(range(len(gpus)), 2))
    bonds = [topology.bond(a, b) for a, b in pairs]
    if not any(bond.nvlinks for bond in bonds):
        return "\n".join(text)
    if len({bond.nvlinks for bond in bonds}) == 1:
        return "\n".join([*text, "", f"NVLink: {bonds[0]} between every pair"])
    text += ["", "NVLink:"]
    for (a, b), bond in zip(pairs, bonds, strict=True):
        if bond.nvlinks:
            text.append(f"    GPU{gpus[a].index} - GPU{gpus[b].index}  {bond}")
    return "\n".join(text)


def groups(topology: Topology, members: Group, level: Level) -> tuple[Group, ...]:
    """Part `members` into those that bonds of at least `level` join, by lowest position."""
    return topology.connected(members, lambda bond: bond.level >= level)


def branches(topology: Topology) -> tuple[Branch, ...]:
    """Part the machine into sockets and, in them, whatever parts their GPUs."""
    every = tuple(range(len(topology.gpus)))
    return _grown(topology, groups(topology, every, Level.NODE))


def _grown(topology: Topology, parts: Sequence[Group]) -> tuple[Branch, ...]:
    found = []
    for members in parts:
        if len(members) == 1:
            found.append(Branch(members))
            continue
        level = max(one for one in _LEVELS if len(groups(topology, members, one)) == 1)
        if level is _LEVELS[-1]:
            below = _grown(topology, [(member,) for member in members])
        else:
            tighter = _LEVELS[_LEVELS.index(level) + 1]
            below = _grown(topology, groups(topology, members, tighter))
        found.append(Branch(members, level, below))
    return tuple(found)


def islands(topology: Topology) -> tuple[Island, ...]:
    """Return those that NVLinks join; GPUs without any are on none."""
    every = range(len(topology.gpus))
    return tuple(
        Island(group, min(links), max(links))
        for group in topology.connected(every, lambda bond: bond.nvlinks > 0)
        if (links := [topology.bond(a, b).nvlinks for a, b in combinations(group, 2)])
    )


def _drawn(topology: Topology, parts: Sequence[Branch], indent: str) -> Iterator[str]:
    for number, part in enumerate(parts, start=1):
        joint, below = ("└── ", "    ") if number == len(parts) else ("├── ", "│   ")
        title = part.title
        if part.level is None:
            gpu = topology.gpus[part.members[0]]
            node = "" if gpu.numa_node is None else f"  NUMA {gpu.numa_node}"
            title = f"GPU{gpu.index}  {gpu.model}  {format_bytes(gpu.memory)}  {gpu.bus_id}{node}"
        yield f"{indent}{joint}{title}"
        yield from _drawn(topology, part.below, indent + below)
