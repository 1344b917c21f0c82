"""The tree of a machine's GPUs with the containers on them, as values and as JSON. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpumanager.gpu.topology_text import UNKNOWN_MODEL
from gpumanager.gpu.tree import Branch, Island, branches, islands
from gpumanager.gpu.values import Gpu, Topology
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK, format_bytes
from gpumanager.view.placement import PlacedGrant, Placement

GrantsByGpu = Mapping[str, Sequence[PlacedGrant]]
"""The grants of each GPU, by its UUID."""


def grants_by_gpu(placement: Placement) -> GrantsByGpu:
    """Leave out suspect grants: the kubelet has offered their devices to others since."""
    grants: dict[str, list[PlacedGrant]] = {gpu.uuid: [] for gpu in placement.topology.gpus}
    for grant in placement.grants:
        for uuid in () if grant.suspect else grant.uuids:
            grants.setdefault(uuid, []).append(grant)
    return grants


def share(grant: PlacedGrant, gpu: str) -> int:
    """Return the percent of one of its GPUs, by UUID."""
    if not grant.shares and grant.whole:  # as agents of before tell it
        return CORES_PER_GPU
    return grant.of(gpu)[0]


def granted(grant: PlacedGrant, gpu: str = "") -> str:
    """Return `30 % and 1 GiB`, in words. gpu: the UUID of one of its GPUs; by default the first."""
    gpu = gpu or next(iter(grant.uuids), "")
    if grant.admin:
        return "admin access"
    if grant.whole and share(grant, gpu) == CORES_PER_GPU:
        several = len(grant.uuids) > 1
        return f"one of {len(grant.uuids)} whole GPUs" if several else "the whole GPU"
    cores, blocks = grant.of(gpu)
    memory = f" and {format_bytes(blocks * MEMORY_BLOCK)}" if blocks else ""
    return f"{cores} %{memory}"


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
    percent = sum(share(grant, gpu.uuid) for grant in using)
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
    containers = [
        {
            "pod": grant.pod or None,
            "container": grant.container or None,
            "share_percent": share(grant, gpu.uuid),
            "memory_bytes": _memory(grant, gpu),
            "rule": grant.rule,
            "claim": grant.claim or None,
            "admin": grant.admin,
            "users": [{"pod": pod, "container": name} for pod, name in grant.users],
        }
        for grant in grants.get(gpu.uuid, ())
    ]
    return {**known, "containers": containers}


def _memory(grant: PlacedGrant, gpu: Gpu) -> int:
    whole = grant.whole and share(grant, gpu.uuid) == CORES_PER_GPU
    return gpu.memory if whole else grant.of(gpu.uuid)[1] * MEMORY_BLOCK
