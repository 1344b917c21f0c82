"""The tree for people."""

from collections.abc import Iterable

from rich.text import Text
from rich.tree import Tree

from gpumanager.gpu.tree import Branch, branches, islands
from gpumanager.gpu.values import Topology
from gpumanager.units import count_of
from gpumanager.view.topology_tree import Sitting, free, granted, island, leaf, origin, unheld


def tree(node: str, topology: Topology, held: Sitting | None) -> Tree:
    """Return the tree of a node. held: None where it is not known."""
    count = len(topology.gpus)
    title = Text(node or "machine", style="bold")
    title.append(f"  {count_of(count, 'GPU')}", style="not bold")
    if held is not None:
        title.append(f", {unheld(topology.gpus, held)} free", style="not bold")
    root = Tree(title)
    _grow(root, branches(topology), topology, held)
    if joined := islands(topology):
        links = root.add(Text("NVLink", style="bold"))
        for one in joined:
            links.add(Text(island(topology, one)))
    return root


def _grow(root: Tree, parts: Iterable[Branch], topology: Topology, held: Sitting | None) -> None:
    for part in parts:
        if part.level is None:
            gpu = topology.gpus[part.members[0]]
            grants = None if held is None else held.get(gpu.uuid, ())
            below = root.add(
                Text(leaf(gpu, grants), style="" if grants is None or grants else "dim")
            )
            for one in grants or ():
                label = Text(one.name, style="bold")
                label.append(f"  {granted(one, gpu.uuid)}{origin(one)}", style="not bold")
                if one.unlimited:
                    count = sum(one.unlimited.values())
                    text = f"  NO LIMIT holds for {count} of its processes"
                    label.append(text, style="bold red")
                below.add(label)
            continue
        label = Text(part.title)
        if held is not None:
            label.append(f"  {free(topology, part, held)}", style="dim")
        _grow(root.add(label), part.below, topology, held)
