"""`gpumanager tree`: the topology of a node's GPUs, and the containers on them.

Of a node that runs, or of a machine described by the text of `nvidia-smi topo -m`.
"""

import json
from collections.abc import Sequence

import click

from gpumanager.cli.node_agents import AgentAway, agents_option, document
from gpumanager.cli.output.console import OutputConsole
from gpumanager.cli.output.tree_text import tree
from gpumanager.errors import GpuManagerError, InputError
from gpumanager.gpu.topology_text import read_topology
from gpumanager.gpu.values import Topology
from gpumanager.units import parse_bytes
from gpumanager.view.placement import read_placement
from gpumanager.view.topology_tree import Sitting, as_json, sitting


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
