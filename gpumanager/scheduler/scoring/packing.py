"""Place a whole pod on one node, container by container, with the agent's own code. Pure.

Containers and sidecars run together. An init container runs before them, beside the sidecars before
it, and the kubelet gives its devices to later containers. So each GPU has to hold the maximum over
time, and an init container gets the GPUs of its pod if it fits there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpumanager.gpu.values import Gpu, Topology
from gpumanager.kube.pod import ContainerKind
from gpumanager.placement.near import place_near
from gpumanager.placement.place import place
from gpumanager.placement.values import FreeGpus, GpuChoice, Refusal, Request
from gpumanager.scheduler.scoring.pod_shape import PodShape
from gpumanager.units import CORES_PER_GPU, blocks

Positions = tuple[int, ...]
Use = tuple[int, int, int]
"""Cores, blocks and containers on one GPU."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Where the containers of a pod go, and what that takes.

    gpus: for each container of the ask, positions in the topology, ascending. uses: by position.
    """

    gpus: tuple[Positions, ...]
    uses: Mapping[int, Use]


def pack(
    topology: Topology, free: FreeGpus, ask: PodShape, wanted: Sequence[Positions] = ()
) -> Packing | Refusal:
    """Return a place for each container, or why not.

    wanted: for each container where a policy would have it; followed where it fits, as the node
    follows a plan. Whether there is a place does not depend on it: where the containers do not fit
    so, they are placed without a wish, one after another, and then the largest first.
    Several whole GPUs are looked for where they are as near to each other as the pod prefers.
    """
    if len(ask.requests) == 1 and wanted and wanted[0]:
        return _pack_share(topology, free, ask, wanted[0])
    in_order = range(len(ask.requests))
    first = found = _pack(topology, free, ask, wanted, in_order)
    if isinstance(found, Refusal) and any(wanted):
        first = found = _pack(topology, free, ask, (), in_order)
    if isinstance(found, Refusal) and len(ask.requests) > 1:
        found = _pack(topology, free, ask, (), _largest_first(ask))
    return first if isinstance(found, Refusal) else found


def _pack_share(
    topology: Topology, free: FreeGpus, ask: PodShape, wanted: Positions
) -> Packing | Refusal:
    """Most pods have one container with a share."""
    position, request = wanted[0], ask.requests[0]
    gpu = topology.gpus[position]
    if len(wanted) == 1 and not request.whole_gpus and free.of(gpu).fits(request):
        return Packing((wanted,), {position: (request.cores, request.blocks, 1)})
    return pack(topology, free, ask)


def uses_of(topology: Topology, ask: PodShape, gpus: Sequence[Positions]) -> dict[int, Use]:
    """What a pod takes of each GPU when its containers have these."""
    moments = [_moment(topology, ask, gpus, place) for place in ask.inits]
    moments.append(_moment(topology, ask, gpus, None))
    most: dict[int, Use] = {}
    for moment in moments:
        for position, use in moment.items():
            most[position] = _most(most.get(position, (0, 0, 0)), use)
    return most


def _pack(
    topology: Topology,
    free: FreeGpus,
    ask: PodShape,
    wanted: Sequence[Positions],
    order: Iterable[int],
) -> Packing | Refusal:
    gpus: list[Positions] = [()] * len(ask.requests)
    room = free
    inits = ask.inits
    for index in (index for index in order if index not in inits):
        request = ask.requests[index]
        if request.whole_gpus > 1 and ask.preference.near:
            grant = place_near(topology, room, request, ask.preference)
        else:
            grant = _place(topology, room, request, wanted[index] if wanted else ())
        if isinstance(grant, Refusal):
            return grant
        room, gpus[index] = room.take(grant), _positions(topology, grant)
    home = {position for held in gpus for position in held}
    for index in inits:
        before = _beside(topology, free, ask, gpus, index)
        grant = _near(topology, before, ask.requests[index], home)
        if isinstance(grant, Refusal):
            return grant
        gpus[index] = _positions(topology, grant)
    return Packing(tuple(gpus), uses_of(topology, ask, gpus))


def _place(
    topology: Topology, free: FreeGpus, request: Request, wanted: Positions
) -> GpuChoice | Refusal:
    """As the node would: the wish where it can be had, its own choice where not."""
    if wanted and len(wanted) == max(1, request.whole_gpus):
        gpus = tuple(topology.gpus[position] for position in sorted(wanted))
        if all(free.of(gpu).fits(request) for gpu in gpus):
            return GpuChoice(request, gpus, "as the policy has it")
    return place(topology, free, request)


def _near(
    topology: Topology, free: FreeGpus, request: Request, home: set[int]
) -> GpuChoice | Refusal:
    """On the GPUs the pod will have anyway, or else where it fits."""
    others = (gpu for position, gpu in enumerate(topology.gpus) if position not in home)
    grant = place(topology, free.without(others), request) if home else None
    return grant if isinstance(grant, GpuChoice) else place(topology, free, request)


def _beside(
    topology: Topology, free: FreeGpus, ask: PodShape, gpus: Sequence[Positions], index: int
) -> FreeGpus:
    """What an init container finds: the sidecars before it have started."""
    for earlier in range(index):
        if ask.kinds[earlier] is ContainerKind.SIDECAR:
            held, request = tuple(topology.gpus[n] for n in gpus[earlier]), ask.requests[earlier]
            free = free.take(GpuChoice(request, held, ""))
    return free


def _largest_first(ask: PodShape) -> list[int]:
    sizes = [(request.cores, request.blocks) for request in ask.requests]
    return sorted(range(len(sizes)), key=lambda index: sizes[index], reverse=True)


def _positions(topology: Topology, grant: GpuChoice) -> Positions:
    held = {gpu.uuid for gpu in grant.gpus}
    return tuple(place for place, gpu in enumerate(topology.gpus) if gpu.uuid in held)


def _moment(
    topology: Topology, ask: PodShape, gpus: Sequence[Positions], init: int | None
) -> dict[int, Use]:
    """What is held while this init container runs; None: when the pod's containers do."""
    found: dict[int, Use] = {}
    for index, request in enumerate(ask.requests):
        if _runs(ask.kinds[index], index, init):
            for position in gpus[index]:
                cores, memory, count = found.get(position, (0, 0, 0))
                more = _on_one(topology.gpus[position], request)
                found[position] = (cores + more[0], memory + more[1], count + 1)
    return found


def _runs(kind: ContainerKind, index: int, init: int | None) -> bool:
    if init is None:
        return kind is not ContainerKind.INIT
    return index == init or (kind is ContainerKind.SIDECAR and index < init)


def _on_one(gpu: Gpu, request: Request) -> tuple[int, int]:
    """Of one GPU; a whole one goes with all its memory."""
    if request.whole_gpus:
        return CORES_PER_GPU, blocks(gpu.memory)
    return request.cores, request.blocks


def _most(one: Use, other: Use) -> Use:
    return max(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2])
