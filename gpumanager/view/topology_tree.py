"""The tree of a machine's GPUs with the containers on them, as values and as JSON. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpumanager.gpu.topology_text import UNKNOWN_MODEL
from gpumanager.gpu.tree import Branch, Island, branches, islands
from gpumanager.gpu.values import Gpu, Topology
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK, format_bytes
from gpumanager.view.placement import PlacedGrant, Placement

Sitting = Mapping[str, Sequence[PlacedGrant]]
"""By the UUID of the GPU."""


def sitting(placement: Placement) -> Sitting:
    """Return the grants of each GPU; what the kubelet has given to others since is left out."""
    held: dict[str, list[PlacedGrant]] = {gpu.uuid: [] for gpu in placement.topology.gpus}
    for one in placement.grants:
        for uuid in () if one.suspect else one.uuids:
            held.setdefault(uuid, []).append(one)
    return held


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


def leaf(gpu: Gpu, held: Sequence[PlacedGrant] | None) -> str:
    """Return a GPU's line. held: None where it is not known."""
    numa = "" if gpu.numa_node is None else f", NUMA {gpu.numa_node}"
    model = "" if gpu.model == UNKNOWN_MODEL else f"{short_model(gpu.model)}, "
    name = f"GPU{gpu.index}  {model}{format_bytes(gpu.memory)}{numa}"
    if held is None:
        return name
    taken = [one for one in held if not one.admin]
    percent = sum(share(one, gpu.uuid) for one in taken)
    return f"{name}, {percent} % granted" if taken else f"{name}, free"


def free(topology: Topology, branch: Branch, held: Sitting) -> str:
    """Return how many of a branch's GPUs are free, in words."""
    gpus = [topology.gpus[place] for place in branch.members]
    return f"{unheld(gpus, held)} of {len(gpus)} free"


def unheld(gpus: Sequence[Gpu], held: Sitting) -> int:
    """Return how many of these are free: admin access holds none."""
    return sum(all(one.admin for one in held.get(gpu.uuid, ())) for gpu in gpus)


def island(topology: Topology, one: Island) -> str:
    """Return `GPU0-GPU3: 12 NVLinks between every pair`."""
    names = ", ".join(f"GPU{topology.gpus[place].index}" for place in one.members)
    links = f"{one.most}" if one.least == one.most else f"{one.least} to {one.most}"
    every = "between every pair" if one.least == one.most else "between two"
    return f"{names}: {links} NVLinks {every}"


def as_json(topology: Topology, held: Sitting | None, node: str = "") -> dict[str, Any]:
    """Return the tree. held: None where it is not known."""
    return {
        "node": node or None,
        "tree": [_branch_json(topology, one, held) for one in branches(topology)],
        "nvlink_islands": [
            {
                "gpus": [topology.gpus[place].index for place in one.members],
                "least": one.least,
                "most": one.most,
            }
            for one in islands(topology)
        ],
    }


def _branch_json(topology: Topology, one: Branch, held: Sitting | None) -> dict[str, Any]:
    if one.level is not None:
        return {
            "level": one.level.name,
            "gpus": [topology.gpus[place].index for place in one.members],
            "below": [_branch_json(topology, part, held) for part in one.below],
        }
    gpu = topology.gpus[one.members[0]]
    known: dict[str, Any] = {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "model": gpu.model,
        "memory_bytes": gpu.memory,
        "numa_node": gpu.numa_node,
    }
    if held is not None:
        known["containers"] = [
            {
                "pod": grant.pod or None,
                "container": grant.container or None,
                "share_percent": (percent := share(grant, gpu.uuid)),
                "memory_bytes": gpu.memory
                if grant.whole and percent == CORES_PER_GPU
                else grant.of(gpu.uuid)[1] * MEMORY_BLOCK,
                "rule": grant.rule,
                "claim": grant.claim or None,
                "admin": grant.admin,
                "users": [{"pod": pod, "container": name} for pod, name in grant.users],
            }
            for grant in held.get(gpu.uuid, ())
        ]
    return {"gpu": known}
