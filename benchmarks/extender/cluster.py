"""An invented cluster: nodes of eight GPUs, twenty shapes of pods, and pods that have a place.

Everything follows from numbers, so that the API server and the caller, in processes of their own,
speak of the same nodes and pods. Pods have the fields and the size that pods have; their plans are
written by the code that writes them in earnest.
"""

import json
import random
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, islice
from typing import Any, Final

from gpumanager.gpu.inventory import inventory
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.kube.pod import read_pod
from gpumanager.names import VCORE, VMEMORY
from gpumanager.scheduler.extender.bind import annotations
from gpumanager.scheduler.scoring.packing import Packing
from gpumanager.units import GIB, Bytes

GPUS: Final = 8
BLOCKS: Final = 160
"""Of 256 MiB on one GPU."""
OPEN: Final = 200
"""Nodes that are being filled at a time, before a load begins."""
Pod = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """cores, blocks: asked for. weight: how common it is. Twelve CPUs go with a whole GPU."""

    cores: int
    blocks: int
    weight: int

    @property
    def milli(self) -> int:
        """Of a CPU."""
        return 120 * self.cores


SHAPES: Final = (
    *(Shape(10, 8, 12), Shape(10, 16, 6), Shape(20, 24, 8), Shape(20, 40, 4), Shape(25, 32, 10)),
    *(Shape(25, 40, 6), Shape(30, 16, 8), Shape(30, 48, 8), Shape(35, 60, 3), Shape(40, 64, 5)),
    *(Shape(50, 40, 8), Shape(50, 80, 10), Shape(60, 96, 3), Shape(70, 100, 2), Shape(75, 100, 3)),
    *(Shape(80, 120, 2), Shape(100, 0, 20), Shape(200, 0, 4), Shape(400, 0, 2), Shape(800, 0, 1)),
)
_UP_TO: Final = tuple(accumulate(shape.weight for shape in SHAPES))


def shape_of(number: int) -> Shape:
    """Of a pod."""
    return SHAPES[bisect(_UP_TO, number * 2654435761 % 2**32 * _UP_TO[-1] >> 32)]


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def gpus_of(number: int) -> Topology:
    """Of a node: two groups of four, eight links between any two."""
    gpus = [
        Gpu(n, n, GpuUUID(f"GPU-{number:08x}-{n}"), f"{n:02x}", "A100", Bytes(40 * GIB), n // 4)
        for n in range(GPUS)
    ]
    return topology(gpus, _bonds())


@cache
def _bonds() -> list[list[Bond | None]]:
    return [[None if a == b else Bond(Level.SYS, 8) for b in range(GPUS)] for a in range(GPUS)]


def node_object(number: int) -> dict[str, Any]:
    room = {
        "cpu": "96",
        "memory": "1024Gi",
        "pods": "250",
        VCORE: str(100 * GPUS),
        VMEMORY: str(BLOCKS * GPUS),
    }
    return {
        "metadata": {"name": node_name(number), "annotations": inventory(gpus_of(number))},
        "status": {"allocatable": room, "capacity": room},
    }


def pod_object(number: int) -> Pod:
    """As it is made: some 2 KB, as common pods have."""
    shape = shape_of(number)
    limits = {VCORE: str(shape.cores), VMEMORY: str(shape.blocks)}
    host = {"cpu": f"{shape.milli}m", "memory": f"{shape.milli * 4}Mi"}
    container = {
        "name": "main",
        "image": "registry.example/team/image:1.2.3",
        "env": [{"name": f"VARIABLE_{n}", "value": "x" * 40} for n in range(20)],
        "resources": {"limits": {**limits, **host}, "requests": {**limits, **host}},
    }
    return {
        "metadata": {
            "name": f"pod-{number}",
            "namespace": "default",
            "uid": f"00000000-0000-0000-0000-{number:012d}",
            "labels": {"app": f"app-{number % 100}"},
        },
        "spec": {"containers": [container], "schedulerName": "default-scheduler"},
        "status": {"phase": "Pending"},
    }


def bound(pod: Pod, node: str, notes: dict[str, str]) -> Pod:
    """The same pod once it has a node, and what was written on it then."""
    metadata = {**pod["metadata"], "annotations": notes}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": node}}


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod on a node, and the GPUs it has there."""

    pod: int
    node: int
    gpus: tuple[int, ...]

    def object(self) -> Pod:
        pod, topology_ = pod_object(self.pod), gpus_of(self.node)
        packing = Packing((self.gpus,), {})
        name = node_name(self.node)
        return bound(pod, name, annotations(read_pod(pod), name, topology_, packing, 1))


def placed(nodes: int, pods: int) -> Iterator[Placed]:
    """The first `pods` pods, as a scheduler that packs would have placed them.

    Some nodes are being filled at a time; who meets no room on the one it tries closes it.
    """
    luck = random.Random(1)
    fresh = iter(luck.sample(range(nodes), nodes))
    open_ = [_Room(node) for node in islice(fresh, OPEN)]
    for pod in range(pods):
        while open_:
            place = luck.randrange(len(open_))
            if gpus := open_[place].take(shape_of(pod)):
                yield Placed(pod, open_[place].node, gpus)
                break
            following = next(fresh, None)
            open_[place] = open_[-1] if following is None else _Room(following)
            if following is None:
                open_.pop()


class _Room:
    """What is free on a node."""

    def __init__(self, node: int) -> None:
        self.node = node
        self._free = [[100, BLOCKS] for _ in range(GPUS)]

    def take(self, shape: Shape) -> tuple[int, ...]:
        """Empty where there is no room."""
        count, whole = max(1, shape.cores // 100), shape.cores >= 100
        asked = (100, BLOCKS) if whole else (shape.cores, shape.blocks)
        fits = (cores >= asked[0] and room >= asked[1] for cores, room in self._free)
        places = [place for place, found in enumerate(fits) if found][:count]
        if len(places) < count:
            return ()
        for place in places:
            self._free[place][0] -= asked[0]
            self._free[place][1] -= asked[1]
        return tuple(places)


def encoded(item: Any) -> bytes:
    """As Go writes it."""
    return json.dumps(item, separators=(",", ":")).encode()
