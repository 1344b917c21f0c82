"""`gpumanager tree`: the topology of a node's GPUs, and the containers on them.

It asks the node's agent, or reads the output of `nvidia-smi topo -m`, which names no containers.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.text import Text
from rich.tree import Tree

from gpumanager.cli.node_agents import AgentUnavailable, agents_option, fetch_node
from gpumanager.cli.output.console import OutputConsole
from gpumanager.errors import GpuManagerError, InputError
from gpumanager.gpu.topology_text import UNKNOWN_MODEL, read_topology
from gpumanager.gpu.tree import Branch, branches, islands
from gpumanager.gpu.values import Gpu, Topology
from gpumanager.units import count_of, format_bytes, parse_bytes
from gpumanager.view.node import ContainerRow, DeviceRow, NodeView, Share, granted, short_model

Shares = Mapping[str, Sequence[Share]]
"""The grants of each GPU, by its UUID, and what each has of it."""


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
    nodes: list[tuple[str, Topology, Shares | None]] = []
    if topology_file is not None:
        try:
            gpu_memory = parse_bytes(memory)
        except ValueError as error:
            raise InputError("--memory", str(error)) from error
        nodes.append(("", read_topology(topology_file, gpu_memory), None))
    for url in agents if topology_file is None else ():
        try:
            node = fetch_node(url)
        except GpuManagerError as error:
            raise AgentUnavailable(url, str(error)) from error
        nodes.append((node.node, node.topology, shares_by_gpu(node)))
    if in_json:
        trees = [as_json(topology, shares, name) for name, topology, shares in nodes]
        click.echo(json.dumps({"nodes": trees}, indent=2))
        return
    console = OutputConsole()
    for name, topology, shares in nodes:
        console.print(tree(name, topology, shares))


def shares_by_gpu(node: NodeView) -> Shares:
    """Leave out suspect grants: the kubelet has offered their devices to others since."""
    shares: dict[str, list[Share]] = {gpu.uuid: [] for gpu in node.topology.gpus}
    for one in node.containers:
        for device in () if one.suspect else one.devices:
            shares.setdefault(device.uuid, []).append((one, device))
    return shares


def tree(node: str, topology: Topology, shares: Shares | None) -> Tree:
    """Return the tree of a node. shares: None where they are not known."""
    title = Text(node or "machine", style="bold")
    title.append(f"  {count_of(len(topology.gpus), 'GPU')}", style="not bold")
    if shares is not None:
        title.append(f", {_free_count(topology.gpus, shares)} free", style="not bold")
    root = Tree(title)
    _grow(root, branches(topology), topology, shares)
    if joined := islands(topology):
        links = root.add(Text("NVLink", style="bold"))
        for island in joined:
            # `GPU0, GPU3: 12 NVLinks between every pair`
            names = ", ".join(f"GPU{topology.gpus[place].index}" for place in island.members)
            many, every = f"{island.most}", "between every pair"
            if island.least != island.most:
                many, every = f"{island.least} to {island.most}", "between two"
            links.add(Text(f"{names}: {many} NVLinks {every}"))
    return root


def _grow(root: Tree, parts: Iterable[Branch], topology: Topology, shares: Shares | None) -> None:
    for part in parts:
        gpus = [topology.gpus[place] for place in part.members]
        if part.level is None:
            on_gpu = None if shares is None else shares.get(gpus[0].uuid, ())
            idle = "" if on_gpu is None or on_gpu else "dim"
            below = root.add(Text(leaf(gpus[0], on_gpu), style=idle))
            for one, device in on_gpu or ():
                label = Text(one.name, style="bold")
                origin = f", claim {one.claim} ({', '.join(one.requests)})" if one.claim else ""
                label.append(f"  {granted(one, device)}{origin}", style="not bold")
                if count := sum(one.unlimited_processes.values()):
                    label.append(f"  NO LIMIT holds for {count} of its processes", style="bold red")
                below.add(label)
            continue
        label = Text(part.title)
        if shares is not None:
            label.append(f"  {_free_count(gpus, shares)} of {len(gpus)} free", style="dim")
        _grow(root.add(label), part.below, topology, shares)


def leaf(gpu: Gpu, shares: Sequence[Share] | None) -> str:
    """shares: None where they are not known."""
    numa = "" if gpu.numa_node is None else f", NUMA {gpu.numa_node}"
    model = "" if gpu.model == UNKNOWN_MODEL else f"{short_model(gpu.model)}, "
    name = f"GPU{gpu.index}  {model}{format_bytes(gpu.memory)}{numa}"
    if shares is None:
        return name
    using = [device for one, device in shares if one.state != "admin"]
    percent = sum(device.share_granted_percent or 0 for device in using)
    return f"{name}, {percent} % granted" if using else f"{name}, free"


def _free_count(gpus: Sequence[Gpu], shares: Shares) -> int:
    """Return how many of these GPUs no grant uses; admin access uses none."""
    return sum(all(one.state == "admin" for one, _ in shares.get(gpu.uuid, ())) for gpu in gpus)


def as_json(topology: Topology, shares: Shares | None, node: str = "") -> dict[str, Any]:
    """shares: None where they are not known."""

    def below(branch: Branch) -> dict[str, Any]:
        if branch.level is not None:
            return {
                "level": branch.level.name,
                "gpus": [topology.gpus[place].index for place in branch.members],
                "below": [below(part) for part in branch.below],
            }
        gpu = topology.gpus[branch.members[0]]
        known = {
            "index": gpu.index,
            "uuid": gpu.uuid,
            "model": gpu.model,
            "memory_bytes": gpu.memory,
            "numa_node": gpu.numa_node,
        }
        if shares is not None:
            known["containers"] = [_holder(*share) for share in shares.get(gpu.uuid, ())]
        return {"gpu": known}

    return {
        "node": node or None,
        "tree": [below(branch) for branch in branches(topology)],
        "nvlink_islands": [
            {
                "gpus": [topology.gpus[place].index for place in island.members],
                "least": island.least,
                "most": island.most,
            }
            for island in islands(topology)
        ],
    }


def _holder(one: ContainerRow, device: DeviceRow) -> dict[str, Any]:
    """Return what the node's document has of a grant, and of its share of this GPU."""
    grant, share = asdict(one), asdict(device)
    names = ("namespace", "pod", "container", "state", "claim", "users", "evaluator")
    keys = ("share_granted_percent", "share_ceiling_percent", "memory_limit_bytes")
    return {**{key: grant[key] for key in names}, **{key: share[key] for key in keys}}
