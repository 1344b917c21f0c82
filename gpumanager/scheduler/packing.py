"""Place a whole pod on one node, container by container, with the node's own code. Pure.

Containers and sidecars run together; an init container runs before them, beside the sidecars that
stand before it, and the kubelet hands its devices on to those that follow. So each GPU has to hold
the most that any moment asks of it, and an init container goes where its pod will be anyway, if it
fits there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpumanager.gpu.values import Gpu, Topology
from gpumanager.kubelet.pods import ContainerKind
from gpumanager.placement.place import evaluator_of, place
from gpumanager.placement.values import Books, GpuBook, Grant, Refusal, Request
from gpumanager.scheduler.asks import PodAsk
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
    topology: Topology, books: Books, ask: PodAsk, wanted: Sequence[Positions] = ()
) -> Packing | Refusal:
    """A place for each container, or why not.

    wanted: for each container where a policy would have it; followed where it fits, as the node
    follows a plan. Where the containers do not fit one after another, the largest come first.
    """
    found = _pack(topology, books, ask, wanted, range(len(ask.containers)))
    if isinstance(found, Refusal) and len(ask.containers) > 1:
        again = _pack(topology, books, ask, (), _largest_first(ask))
        return found if isinstance(again, Refusal) else again
    return found


def uses_of(topology: Topology, ask: PodAsk, gpus: Sequence[Positions]) -> dict[int, Use]:
    """What a pod takes of each GPU when its containers have these."""
    moments = [_moment(topology, ask, gpus, place) for place in _inits(ask)]
    moments.append(_moment(topology, ask, gpus, None))
    most: dict[int, Use] = {}
    for moment in moments:
        for position, use in moment.items():
            most[position] = _most(most.get(position, (0, 0, 0)), use)
    return most


def _pack(
    topology: Topology,
    books: Books,
    ask: PodAsk,
    wanted: Sequence[Positions],
    order: Iterable[int],
) -> Packing | Refusal:
    gpus: list[Positions] = [()] * len(ask.containers)
    room = books
    inits = _inits(ask)
    for index in (index for index in order if index not in inits):
        request = ask.containers[index].request
        grant = _place(topology, room, request, wanted[index] if wanted else ())
        if isinstance(grant, Refusal):
            return grant
        room, gpus[index] = room.take(grant), _positions(topology, grant)
    home = {position for held in gpus for position in held}
    for index in inits:
        before = _beside(topology, books, ask, gpus, index)
        grant = _near(topology, before, ask.containers[index].request, home)
        if isinstance(grant, Refusal):
            return grant
        gpus[index] = _positions(topology, grant)
    return Packing(tuple(gpus), uses_of(topology, ask, gpus))


def _place(
    topology: Topology, books: Books, request: Request, wanted: Positions
) -> Grant | Refusal:
    """As the node would: the wish where it can be had, its own choice where not."""
    if wanted and len(wanted) == max(1, request.whole_gpus):
        gpus = tuple(topology.gpus[position] for position in sorted(wanted))
        if all(_has_room(books.of(gpu), gpu, request) for gpu in gpus):
            return Grant(request, evaluator_of(request), gpus, "as the policy has it")
    return place(topology, books, request)


def _has_room(book: GpuBook, gpu: Gpu, request: Request) -> bool:
    if request.whole_gpus:
        return book.untouched and blocks(gpu.memory) >= request.blocks
    return book.free_cores >= request.cores and book.free_blocks >= request.blocks


def _near(topology: Topology, books: Books, request: Request, home: set[int]) -> Grant | Refusal:
    """On the GPUs the pod will have anyway, or else where it fits."""
    others = (gpu for position, gpu in enumerate(topology.gpus) if position not in home)
    grant = place(topology, without(books, others), request) if home else None
    return grant if isinstance(grant, Grant) else place(topology, books, request)


def without(books: Books, gpus: Iterable[Gpu]) -> Books:
    """Books in which nothing of these GPUs is free."""
    closed = {gpu.uuid: GpuBook(0, 0, books.of(gpu).processes) for gpu in gpus}
    return Books({**books.gpus, **closed}) if closed else books


def _beside(
    topology: Topology, books: Books, ask: PodAsk, gpus: Sequence[Positions], index: int
) -> Books:
    """What an init container finds: the sidecars before it have started."""
    for earlier in range(index):
        one = ask.containers[earlier]
        if one.kind is ContainerKind.SIDECAR:
            held = tuple(topology.gpus[position] for position in gpus[earlier])
            books = books.take(Grant(one.request, evaluator_of(one.request), held, ""))
    return books


def _inits(ask: PodAsk) -> list[int]:
    kinds = enumerate(one.kind for one in ask.containers)
    return [index for index, kind in kinds if kind is ContainerKind.INIT]


def _largest_first(ask: PodAsk) -> list[int]:
    sizes = [(one.request.cores, one.request.blocks) for one in ask.containers]
    return sorted(range(len(sizes)), key=lambda index: sizes[index], reverse=True)


def _positions(topology: Topology, grant: Grant) -> Positions:
    return tuple(position for position, gpu in enumerate(topology.gpus) if gpu in grant.gpus)


def _moment(
    topology: Topology, ask: PodAsk, gpus: Sequence[Positions], init: int | None
) -> dict[int, Use]:
    """What is held while this init container runs; None: when the pod's containers do."""
    found: dict[int, Use] = {}
    for index, one in enumerate(ask.containers):
        if _runs(one.kind, index, init):
            for position in gpus[index]:
                cores, memory, count = found.get(position, (0, 0, 0))
                more = _on_one(topology.gpus[position], one.request)
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
