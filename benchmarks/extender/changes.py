"""What a change to one node costs, without HTTP: from the API server's object to every verdict.

Each change ends a pod on a node, or begins it again; then every shape that is in use judges that
node anew. The figures show whether the number of nodes matters.
"""

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from extender.cluster import SHAPES, Shape, node_name, node_object, placed, pod_object, shape_of
from gpumanager.kube.pod import read_pod
from gpumanager.scheduler.scoring.pod_shape import PodShape, pod_shape_of
from gpumanager.scheduler.scoring.verdicts import Verdicts, filter_nodes
from gpumanager.scheduler.scoring.workload_mix import WorkloadMix
from gpumanager.scheduler.state import ClusterState
from gpumanager.scheduler.watching import PodWatch, node_store

PODS_PER_NODE: Final = 5
MEASURED: Final = 400


@dataclass(frozen=True, slots=True)
class ChangeCost:
    """Microseconds, medians. taken: to take a change in. judged: to bring one shape up to date."""

    nodes: int
    taken: float
    judged: float


def change_cost(nodes: int, changes: int = MEASURED) -> ChangeCost:
    """In a cluster of so many nodes, with five times as many pods."""
    habits = WorkloadMix()
    state = ClusterState(habits=habits)
    verdicts = Verdicts(state, habits)
    put_node, pods = node_store(state).put, PodWatch(state)
    for number in range(nodes):
        put_node(node_object(number))
    there = list(placed(nodes, nodes * PODS_PER_NODE))
    for one in there:
        pods.put(one.object())
    asks = _asks()
    for ask in asks:
        filter_nodes(verdicts.of(ask), [node_name(number) for number in range(nodes)])
    chosen = random.Random(1).sample(there, min(changes, len(there)))
    taken, judged = [], []
    for one in chosen:
        item = one.object()
        for change in (pods.remove, pods.put):
            taken.append(_seconds(partial(change, item)))
            node = node_name(one.node)
            judged.append(_seconds(partial(_catch_up, verdicts, asks, node)) / len(asks))
    return ChangeCost(nodes, statistics.median(taken) * 1e6, statistics.median(judged) * 1e6)


def _asks() -> list[PodShape]:
    """One for each shape."""
    found: dict[Shape, PodShape] = {}
    number = 0
    while len(found) < len(SHAPES):
        ask = pod_shape_of(read_pod(pod_object(number)))
        assert isinstance(ask, PodShape)
        found.setdefault(shape_of(number), ask)
        number += 1
    return list(found.values())


def _catch_up(verdicts: Verdicts, asks: list[PodShape], node: str) -> None:
    for ask in asks:
        verdicts.of(ask).of(node)


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
