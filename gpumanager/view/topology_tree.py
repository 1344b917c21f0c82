"""The tree of a machine's GPUs with the containers on them, as values and as JSON. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpumanager.gpu.topology_text import UNKNOWN_MODEL
from gpumanager.gpu.tree import Branch, Island, branches, islands
from gpumanager.gpu.values import Gpu, Topology
from gpumanager.units import format_bytes
from gpumanager.view.node import NodeView, PlacedGrant

GrantsByGpu = Mapping[str, Sequence[PlacedGrant]]
"""The grants of each GPU, by its UUID."""


def grants_by_gpu(node: NodeView) -> GrantsByGpu:
    """Leave out suspect grants: the kubelet has offered their devices to others since."""
    grants: dict[str, list[PlacedGrant]] = {gpu.uuid: [] for gpu in node.topology.gpus}
    for grant in node.grants:
        for uuid in () if grant.suspect else grant.shares:
            grants.setdefault(uuid, []).append(grant)
    return grants


def granted(grant: PlacedGrant, gpu: str = "") -> str:
    """Return `30 % and 1 GiB`, in words. gpu: the UUID of one of its GPUs; by default the first."""
    gpu = gpu or next(iter(grant.shares), "")
    if grant.admin:
        return "admin access"
    if gpu in grant.whole:
        several = len(grant.shares) > 1
        return f"one of {len(grant.shares)} whole GPUs" if several else "the whole GPU"
    percent, memory = grant.shares.get(gpu, (0, 0))
    return f"{percent} %" + (f" and {format_bytes(memory)}" if memory else "")


def origin(grant: PlacedGrant) -> str:
    """Return the claim that it got its GPUs by; empty for extended resources."""
    if not grant.claim:
        return ""
    return f", claim {grant.claim.partition('/')[2]} ({', '.join(grant.requests)})"


def short_model(model: str) -> str:
    """Return a model's name without the maker's."""
    return model.removeprefix("NVIDIA ").removeprefix("Tesla ")


def leaf(gpu: Gpu, grants: Sequence[PlacedGrant] | None) -> str:
    """grants: None where they are not known."""
    numa = "" if gpu.numa_node is None else f", NUMA {gpu.numa_node}"
    model = "" if gpu.model == UNKNOWN_MODEL else f"{short_model(gpu.model)}, "
    name = f"GPU{gpu.index}  {model}{format_bytes(gpu.memory)}{numa}"
    if grants is None:
        return name
    using = [grant for grant in grants if not grant.admin]
    percent = sum(grant.shares.get(gpu.uuid, (0, 0))[0] for grant in using)
    return f"{name}, {percent} % granted" if using else f"{name}, free"


def free_count(gpus: Sequence[Gpu], grants: GrantsByGpu) -> int:
    """Return how many of these GPUs no grant uses; admin access uses none."""
    return sum(all(grant.admin for grant in grants.get(gpu.uuid, ())) for gpu in gpus)


def island_text(topology: Topology, island: Island) -> str:
    """`GPU0-GPU3: 12 NVLinks between every pair`."""
    names = ", ".join(f"GPU{topology.gpus[place].index}" for place in island.members)
    links = f"{island.most}" if island.least == island.most else f"{island.least} to {island.most}"
    every = "between every pair" if island.least == island.most else "between two"
    return f"{names}: {links} NVLinks {every}"


def as_json(topology: Topology, grants: GrantsByGpu | None, node: str = "") -> dict[str, Any]:
    """grants: None where they are not known."""
    return {
        "node": node or None,
        "tree": [_branch_json(topology, branch, grants) for branch in branches(topology)],
        "nvlink_islands": [
            {
                "gpus": [topology.gpus[place].index for place in island.members],
                "least": island.least,
                "most": island.most,
            }
            for island in islands(topology)
        ],
    }


def _branch_json(topology: Topology, branch: Branch, grants: GrantsByGpu | None) -> dict[str, Any]:
    if branch.level is None:
        return {"gpu": _gpu_json(topology.gpus[branch.members[0]], grants)}
    return {
        "level": branch.level.name,
        "gpus": [topology.gpus[place].index for place in branch.members],
        "below": [_branch_json(topology, part, grants) for part in branch.below],
    }


def _gpu_json(gpu: Gpu, grants: GrantsByGpu | None) -> dict[str, Any]:
    known = {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "model": gpu.model,
        "memory_bytes": gpu.memory,
        "numa_node": gpu.numa_node,
    }
    if grants is None:
        return known
    return {**known, "containers": [_holder_json(one, gpu) for one in grants.get(gpu.uuid, ())]}


def _holder_json(grant: PlacedGrant, gpu: Gpu) -> dict[str, Any]:
    """Return what the node's document has of a grant, and of its share of this GPU."""
    names = ("namespace", "pod", "container", "state", "claim", "users", "evaluator")
    rows = zip(grant.shares, grant.document["gpus"], strict=True)
    device = next(row for uuid, row in rows if uuid == gpu.uuid)
    keys = ("share_granted_percent", "share_ceiling_percent", "memory_limit_bytes")
    return {
        **{key: grant.document.get(key) for key in names},
        **{key: device.get(key) for key in keys},
    }
