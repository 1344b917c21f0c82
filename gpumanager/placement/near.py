"""Several whole GPUs that are as near to each other as a pod or the cluster prefers.

The evaluator of links searches for them within each group of free GPUs that are near to each
other in every way preferred, then in every way insisted on, then, where nothing is, anywhere.
"""

from collections.abc import Collection, Sequence

from gpumanager.gpu.values import Topology
from gpumanager.placement.nearness import NEARNESS, Group, Nearness, linked
from gpumanager.placement.place import place
from gpumanager.placement.preference import Preference
from gpumanager.placement.values import FreeGpus, GpuChoice, Reason, Refusal, Request
from gpumanager.placement.whole import free_positions
from gpumanager.units import count_of


def place_near(
    topology: Topology, free: FreeGpus, request: Request, preference: Preference
) -> GpuChoice | Refusal:
    """Choose the GPUs for one container that asks for more than one."""
    anywhere = place(topology, free, request)
    if isinstance(anywhere, Refusal):
        return anywhere
    kinds = [NEARNESS[name] for name, _ in preference.near]
    strict = [kind for kind in kinds if kind.name in preference.strict]
    for insisted in (kinds, strict) if strict else (kinds,):
        if found := _nearest(topology, free, request, insisted):
            return found
    if not strict:
        return anywhere
    names = " and ".join(kind.name for kind in strict)
    detail = f"{count_of(request.whole_gpus, 'whole GPU')} asked, strict about {names}"
    return Refusal(request, Reason.NOT_NEAR, detail)


def lacking(topology: Topology, request: Request, preference: Preference) -> tuple[Nearness, bool]:
    """Return what a strict request misses on a node, and whether the node would lack that even if
    all its GPUs were free."""
    strict = [NEARNESS[name] for name, _ in preference.near if name in preference.strict]
    for count, kind in enumerate(strict, start=1):
        groups = _within(topology, range(len(topology.gpus)), strict[:count])
        if max(map(len, groups), default=0) < request.whole_gpus:
            return kind, True
    return strict[0], False


def nearness(topology: Topology, gpus: Collection[Sequence[int]], preference: Preference) -> float:
    """Return the weighted mean over the containers with several GPUs; the most where none has."""
    several = [held for held in gpus if len(held) > 1]
    points = 0.0
    for name, weight in preference.near:
        near = [NEARNESS[name].of(topology, held) for held in several]
        points += weight * (sum(near) / len(near) if near else 1.0)
    return points


def _nearest(
    topology: Topology, free: FreeGpus, request: Request, kinds: Sequence[Nearness]
) -> GpuChoice | None:
    """Return the best linked; of equals from the smallest group, which breaks the least."""
    best: tuple[float, GpuChoice] | None = None
    for group in _within(topology, free_positions(topology, free), kinds):
        if len(group) < request.whole_gpus:
            continue
        others = (gpu for at, gpu in enumerate(topology.gpus) if at not in group)
        grant = place(topology, free.without(others), request)
        if isinstance(grant, Refusal):
            continue
        held = tuple(topology.gpus.index(gpu) for gpu in grant.gpus)
        links = linked(topology, held)
        if all(kind.is_near(topology, held) for kind in kinds) and (
            best is None or links > best[0]
        ):
            best = links, grant
    return best and best[1]


def _within(
    topology: Topology, positions: Collection[int], kinds: Sequence[Nearness]
) -> Sequence[Group]:
    """Return the groups in which GPUs are near in every way, the smallest first."""
    groups: Sequence[Group] = [frozenset(positions)]
    for kind in kinds:
        groups = [part for group in groups for part in kind.groups(topology, group)]
    return sorted(groups, key=lambda group: (len(group), min(group, default=0)))
