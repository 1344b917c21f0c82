"""What fits where: the ways in which an ask can be given GPUs of one node, and what is left then.

Pods of several containers are given GPUs one request after another, the largest first, each where
the caller's `worth` of what is left is highest. That is not every way there is: a node may be
passed over that a search of all of them would have found a place on.
"""

from collections.abc import Callable, Iterator

from gpumanager.placement.cluster import Ask, GpuRoom, NodeRoom
from gpumanager.placement.values import Request
from gpumanager.units import CORES_PER_GPU

Gpus = tuple[GpuRoom, ...]
Positions = tuple[int, ...]
Worth = Callable[[NodeRoom], float]
Placed = tuple[float, NodeRoom, tuple[Positions, ...]]
"""What the room that is left is worth, that room, and for each request GPU indices."""


def put(room: NodeRoom, ask: Ask, worth: Worth) -> Placed | None:
    """The ask where what is left is worth most; None where it does not fit."""
    if not admits(room, ask):
        return None
    left = without(room, ask)
    if not ask.requests:
        return worth(left), left, ()
    if len(ask.requests) == 1:
        found = _put_one(left, ask.requests[0], worth)
        return found and (found[0], found[1], (_indices(room, found[2]),))
    return _put_all(left, ask, worth)


def admits(room: NodeRoom, ask: Ask) -> bool:
    """All but the GPUs: the host's CPU and memory, and the model."""
    return (
        ask.cpu_milli <= room.cpu_milli
        and ask.memory_mib <= room.memory_mib
        and (not ask.models or not ask.requests or room.model in ask.models)
    )


def without(room: NodeRoom, ask: Ask) -> NodeRoom:
    """The room less the CPU and memory of the host that `ask` takes."""
    return NodeRoom(
        room.name,
        room.model,
        room.gpus,
        room.cpu_milli - ask.cpu_milli,
        room.memory_mib - ask.memory_mib,
        room.whole_cpu_milli,
        room.whole_memory_mib,
    )


def with_gpus(room: NodeRoom, gpus: Gpus) -> NodeRoom:
    """The same node with other room on its GPUs."""
    return NodeRoom(
        room.name,
        room.model,
        gpus,
        room.cpu_milli,
        room.memory_mib,
        room.whole_cpu_milli,
        room.whole_memory_mib,
    )


def choices(gpus: Gpus, request: Request) -> Iterator[Positions]:
    """Ways to give `request` GPUs that differ in what is left, by position in `gpus`.

    Whole GPUs: one way, those with the least memory that suffices. A share: each GPU that has the
    room, one of several equal ones.
    """
    if request.whole_gpus:
        whole = [place for place, gpu in enumerate(gpus) if _is_whole(gpu, request)]
        if len(whole) >= request.whole_gpus:
            whole.sort(key=lambda place: gpus[place].blocks)
            yield tuple(sorted(whole[: request.whole_gpus]))
        return
    seen = set()
    for place, gpu in enumerate(gpus):
        state = gpu.free_cores, gpu.free_blocks, gpu.blocks
        if has_share(gpu, request) and state not in seen:
            seen.add(state)
            yield (place,)


def has_share(gpu: GpuRoom, request: Request) -> bool:
    return gpu.free_cores >= request.cores and gpu.free_blocks >= request.blocks


def take(gpus: Gpus, request: Request, places: Positions) -> Gpus:
    """What is left of `gpus` when the request has those at `places`."""
    left = list(gpus)
    for place in places:
        left[place] = _less(gpus[place], request)
    return tuple(left)


def _is_whole(gpu: GpuRoom, request: Request) -> bool:
    return gpu.untouched and gpu.blocks >= request.blocks


def _less(gpu: GpuRoom, request: Request) -> GpuRoom:
    if request.cores >= CORES_PER_GPU:
        return GpuRoom(gpu.index, 0, 0, gpu.blocks)
    cores, blocks = gpu.free_cores - request.cores, gpu.free_blocks - request.blocks
    return GpuRoom(gpu.index, cores, blocks, gpu.blocks)


def _put_one(
    room: NodeRoom, request: Request, worth: Worth
) -> tuple[float, NodeRoom, Positions] | None:
    best: tuple[float, NodeRoom, Positions] | None = None
    for places in choices(room.gpus, request):
        left = with_gpus(room, take(room.gpus, request, places))
        points = worth(left)
        if best is None or points > best[0]:
            best = points, left, places
    return best


def _put_all(room: NodeRoom, ask: Ask, worth: Worth) -> Placed | None:
    given: list[Positions] = [()] * len(ask.requests)
    points = 0.0
    hardest = sorted(
        range(len(given)), key=lambda one: (-ask.requests[one].cores, -ask.requests[one].blocks)
    )
    for number in hardest:
        found = _put_one(room, ask.requests[number], worth)
        if found is None:
            return None
        points, room, places = found
        given[number] = _indices(room, places)
    return points, room, tuple(given)


def _indices(room: NodeRoom, places: Positions) -> Positions:
    return tuple(room.gpus[place].index for place in places)
