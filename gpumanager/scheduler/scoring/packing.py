"""Place a whole pod on one node, container by container, with the agent's own code. Pure.

Containers and sidecars run together. An init container runs before them, beside the sidecars before
it, and the kubelet gives its devices to later containers. So each GPU has to hold the maximum over
time, and an init container gets the GPUs of its pod if it fits there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpumanager.gpu.values import Topology
from gpumanager.kube.pod import ContainerKind
from gpumanager.placement.near import place_near
from gpumanager.placement.place import place
from gpumanager.placement.values import FreeGpus, GpuChoice, Refusal
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

    wanted: for each share the GPU where a policy would have it; followed where it fits, as the node
    follows a plan. Whether there is a place does not depend on it: where the containers do not fit
    so, they are placed without a wish, one after another, and then the largest first.
    Several whole GPUs are placed as near to each other as the pod prefers.
    """
    if len(ask.requests) == 1 and wanted and wanted[0]:
        # Most pods have one container with a share.
        position, request = wanted[0][0], ask.requests[0]
        if not request.whole_gpus and free.of(topology.gpus[position]).fits(request):
            return Packing((wanted[0],), {position: (request.cores, request.blocks, 1)})
        wanted = ()
    in_order = range(len(ask.requests))
    found = _pack(topology, free, ask, wanted, in_order)
    if isinstance(found, Refusal) and any(wanted):
        found = _pack(topology, free, ask, (), in_order)
    if isinstance(found, Packing) or len(ask.requests) == 1:
        return found
    sizes = [(request.cores, request.blocks) for request in ask.requests]
    largest_first = sorted(in_order, key=sizes.__getitem__, reverse=True)
    again = _pack(topology, free, ask, (), largest_first)
    return found if isinstance(again, Refusal) else again


def uses_of(topology: Topology, ask: PodShape, gpus: Sequence[Positions]) -> dict[int, Use]:
    """Return what a pod takes of each GPU when its containers have these.

    That is the most over time: while each init container runs, and while its containers do.
    """
    most: dict[int, Use] = {}
    for init in (*ask.inits, None):
        moment: dict[int, Use] = {}
        for index, request in enumerate(ask.requests):
            kind = ask.kinds[index]
            if init is None:
                runs = kind is not ContainerKind.INIT
            else:
                runs = index == init or (kind is ContainerKind.SIDECAR and index < init)
            for position in gpus[index] if runs else ():
                cores, memory, count = moment.get(position, (0, 0, 0))
                if request.whole_gpus:  # a whole GPU goes with all its memory
                    cores += CORES_PER_GPU
                    memory += blocks(topology.gpus[position].memory)
                else:
                    cores, memory = cores + request.cores, memory + request.blocks
                moment[position] = cores, memory, count + 1
        for position, (cores, memory, count) in moment.items():
            before = most.get(position, (0, 0, 0))
            most[position] = max(before[0], cores), max(before[1], memory), max(before[2], count)
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
        request, wish = ask.requests[index], wanted[index] if wanted else ()
        wished = tuple(topology.gpus[position] for position in wish)
        grant: GpuChoice | Refusal
        if request.whole_gpus > 1 and ask.preference.near:
            grant = place_near(topology, room, request, ask.preference)
        elif wished and all(room.of(gpu).fits(request) for gpu in wished):
            grant = GpuChoice(request, wished, "as the policy has it")
        else:
            grant = place(topology, room, request)
        if isinstance(grant, Refusal):
            return grant
        room, gpus[index] = room.take(grant), _positions(topology, grant)
    home = {position for held in gpus for position in held}
    for index in inits:
        request, before = ask.requests[index], free
        for earlier in range(index):  # the sidecars before it have started
            if ask.kinds[earlier] is ContainerKind.SIDECAR:
                held = tuple(topology.gpus[n] for n in gpus[earlier])
                before = before.take(GpuChoice(ask.requests[earlier], held, ""))
        # On the GPUs the pod will have anyway, or else where it fits.
        others = [gpu for n, gpu in enumerate(topology.gpus) if home and n not in home]
        grant = place(topology, before.without(others), request)
        if isinstance(grant, Refusal) and others:
            grant = place(topology, before, request)
        if isinstance(grant, Refusal):
            return grant
        gpus[index] = _positions(topology, grant)
    return Packing(tuple(gpus), uses_of(topology, ask, gpus))


def _positions(topology: Topology, grant: GpuChoice) -> Positions:
    held = {gpu.uuid for gpu in grant.gpus}
    return tuple(place for place, gpu in enumerate(topology.gpus) if gpu.uuid in held)
