"""What is free on a node of a trace once a pod has come, and once it has left again. Pure."""

from bisect import insort

from gpumanager.placement.cluster import Ask, GpuRoom, NodeRoom
from gpumanager.placement.rooms import Gpus, take
from gpumanager.placement.values import Request
from gpumanager.sim.trace.values import TraceRoom, kind_of, kinds_on
from gpumanager.units import CORES_PER_GPU

Given = tuple[tuple[int, ...], ...]
"""For each request the indices of its GPUs."""


def after(room: NodeRoom, ask: Ask, gpus: Given) -> NodeRoom:
    """The room when the ask has those GPUs; ValueError where it has not the room for it."""
    left = room.gpus
    for request, places in zip(ask.requests, _positions(room, gpus), strict=True):
        left = take(left, request, places)
    cpu, memory = room.cpu_milli - ask.cpu_milli, room.memory_mib - ask.memory_mib
    if min([cpu, memory, *(gpu.free_cores for gpu in left)]) < 0:
        raise ValueError(f"{ask} does not fit on {gpus} of {room.name}")
    kinds = list(kinds_on(room))
    if ask.requests:
        insort(kinds, kind_of(ask))
    return _room(room, left, cpu, memory, kinds)


def given_back(room: NodeRoom, ask: Ask, gpus: Given) -> NodeRoom:
    """The room when the ask that had those GPUs has gone."""
    left = room.gpus
    for request, places in zip(ask.requests, _positions(room, gpus), strict=True):
        left = _give(left, request, places)
    kinds = list(kinds_on(room))
    if ask.requests:
        kinds.remove(kind_of(ask))
    return _room(
        room, left, room.cpu_milli + ask.cpu_milli, room.memory_mib + ask.memory_mib, kinds
    )


def _positions(room: NodeRoom, gpus: Given) -> Given:
    places = {gpu.index: place for place, gpu in enumerate(room.gpus)}
    return tuple(tuple(places[index] for index in indices) for indices in gpus)


def _give(gpus: Gpus, request: Request, places: tuple[int, ...]) -> Gpus:
    left = list(gpus)
    for place in places:
        left[place] = _more(gpus[place], request)
    return tuple(left)


def _more(gpu: GpuRoom, request: Request) -> GpuRoom:
    if request.whole_gpus:
        return GpuRoom(gpu.index, CORES_PER_GPU, gpu.blocks, gpu.blocks)
    cores, blocks = gpu.free_cores + request.cores, gpu.free_blocks + request.blocks
    return GpuRoom(gpu.index, cores, blocks, gpu.blocks)


def _room(room: NodeRoom, gpus: Gpus, cpu: int, memory: int, kinds: list[str]) -> NodeRoom:
    whole = room.whole_cpu_milli, room.whole_memory_mib
    return TraceRoom(room.name, room.model, gpus, cpu, memory, *whole, tuple(kinds))
