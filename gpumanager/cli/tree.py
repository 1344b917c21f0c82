"""`gpumanager tree`: the topology of a node's GPUs, and the containers on them.

It asks the node's agent, or reads the output of `nvidia-smi topo -m`, which names no containers.
"""

import json
from collections.abc import Iterable, Sequence

import click
from rich.text import Text
from rich.tree import Tree

from gpumanager.cli.node_agents import AgentUnavailable, agents_option, fetch_node
from gpumanager.cli.output.console import OutputConsole
from gpumanager.errors import GpuManagerError, InputError
from gpumanager.gpu.topology_text import read_topology
from gpumanager.gpu.tree import Branch, branches, islands
from gpumanager.gpu.values import Topology
from gpumanager.units import count_of, parse_bytes
from gpumanager.view.topology_tree import (
    GrantsByGpu,
    as_json,
    free_count,
    granted,
    grants_by_gpu,
    island_text,
    leaf,
    origin,
)


@click.command("tree")
@agents_option
@click.option(
    "--topology",
    "topology_file",
    metavar="FILE",
    help="Instead of asking a node: what `nvidia-smi topo -m` printed; - reads standard input.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    default="16GiB",
    show_default=True,
    help="With --topology: memory of each GPU.",
)
@click.option("--json", "in_json", is_flag=True, help="Print JSON.")
def command(
    agents: Sequence[str], topology_file: str | None, memory: str, *, in_json: bool
) -> None:
    """Show sockets, switches and NVLinks, the GPUs on them, and who has them.

    \b
    Examples:
      gpumanager tree
      nvidia-smi topo -m | gpumanager tree --topology -
    """
    nodes: list[tuple[str, Topology, GrantsByGpu | None]] = []
    if topology_file is not None:
        try:
            gpu_memory = parse_bytes(memory)
        except ValueError as error:
            raise InputError("--memory", str(error)) from error
        nodes.append(("", read_topology(topology_file, gpu_memory), None))
    else:
        for url in agents:
            try:
                node = fetch_node(url)
            except GpuManagerError as error:
                raise AgentUnavailable(url, str(error)) from error
            nodes.append((node.name, node.topology, grants_by_gpu(node)))
    if in_json:
        trees = [as_json(topology, grants, name) for name, topology, grants in nodes]
        click.echo(json.dumps({"nodes": trees}, indent=2))
        return
    console = OutputConsole()
    for name, topology, grants in nodes:
        console.print(tree(name, topology, grants))


def tree(node: str, topology: Topology, grants: GrantsByGpu | None) -> Tree:
    """Return the tree of a node. grants: None where they are not known."""
    count = len(topology.gpus)
    title = Text(node or "machine", style="bold")
    title.append(f"  {count_of(count, 'GPU')}", style="not bold")
    if grants is not None:
        title.append(f", {free_count(topology.gpus, grants)} free", style="not bold")
    root = Tree(title)
    _grow(root, branches(topology), topology, grants)
    if joined := islands(topology):
        links = root.add(Text("NVLink", style="bold"))
        for island in joined:
            links.add(Text(island_text(topology, island)))
    return root


def _grow(
    root: Tree, parts: Iterable[Branch], topology: Topology, grants: GrantsByGpu | None
) -> None:
    for part in parts:
        if part.level is None:
            gpu = topology.gpus[part.members[0]]
            on_gpu = None if grants is None else grants.get(gpu.uuid, ())
            below = root.add(
                Text(leaf(gpu, on_gpu), style="" if on_gpu is None or on_gpu else "dim")
            )
            for grant in on_gpu or ():
                label = Text(grant.name, style="bold")
                label.append(f"  {granted(grant, gpu.uuid)}{origin(grant)}", style="not bold")
                if grant.unlimited:
                    count = sum(grant.unlimited.values())
                    label.append(f"  NO LIMIT holds for {count} of its processes", style="bold red")
                below.add(label)
            continue
        label = Text(part.title)
        if grants is not None:
            gpus = [topology.gpus[place] for place in part.members]
            label.append(f"  {free_count(gpus, grants)} of {len(gpus)} free", style="dim")
        _grow(root.add(label), part.below, topology, grants)
