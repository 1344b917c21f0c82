"""`gpumanager tree`: the topology of a node's GPUs, and the containers on them.

Of a node that runs, or of a machine described by the text of `nvidia-smi topo -m`.
"""

import json
from collections.abc import Iterable, Sequence

import click
from rich.text import Text
from rich.tree import Tree

from gpumanager.cli.node_agents import AgentAway, agents_option, document
from gpumanager.cli.output.console import OutputConsole
from gpumanager.errors import GpuManagerError, InputError
from gpumanager.gpu.topology_text import read_topology
from gpumanager.gpu.tree import Branch, branches, islands
from gpumanager.gpu.values import Topology
from gpumanager.units import count_of, parse_bytes
from gpumanager.view.placement import read_placement
from gpumanager.view.topology_tree import (
    Sitting,
    as_json,
    free,
    granted,
    island,
    leaf,
    origin,
    sitting,
    unheld,
)


@click.command("tree")
@agents_option
@click.option(
    "--topology",
    "path",
    metavar="FILE",
    help="Instead of asking a node: what `nvidia-smi topo -m` printed; - reads standard input.",
)
@click.option(
    "--memory",
    "size",
    metavar="SIZE",
    default="16GiB",
    show_default=True,
    help="With --topology: memory of each GPU.",
)
@click.option("--json", "in_json", is_flag=True, help="Print JSON.")
def command(agents: Sequence[str], path: str | None, size: str, *, in_json: bool) -> None:
    """Show sockets, switches and NVLinks, the GPUs on them, and who has them.

    \b
    Examples:
      gpumanager tree
      nvidia-smi topo -m | gpumanager tree --topology -
    """
    machines: list[tuple[str, Topology, Sitting | None]] = []
    if path is not None:
        try:
            memory = parse_bytes(size)
        except ValueError as error:
            raise InputError("--memory", str(error)) from error
        machines.append(("", read_topology(path, memory), None))
    for url in agents if path is None else ():
        try:
            found = read_placement(document(url, "/api/placement"))
        except GpuManagerError as error:
            raise AgentAway(url, str(error)) from error
        machines.append((found.node, found.topology, sitting(found)))
    if in_json:
        nodes = [as_json(topology, held, node) for node, topology, held in machines]
        click.echo(json.dumps({"nodes": nodes}, indent=2))
        return
    console = OutputConsole()
    for node, topology, held in machines:
        console.print(tree(node, topology, held))


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
