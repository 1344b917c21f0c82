"""In which order the pods of a trace ask, and how many: shuffled, then inflated to a load.

As the published experiments do: all pods shuffled by the seed, then pods drawn from all of them
with replacement are appended until what is asked reaches the load; a load that is less than the
pods ask together takes the first of the shuffled ones. Nobody leaves.
"""

import random
from collections.abc import Sequence

from gpumanager.errors import InputError
from gpumanager.placement.values import FreeNode
from gpumanager.sim.trace.values import TracePod, Workload


def arrange(
    nodes: Sequence[FreeNode], pods: Sequence[TracePod], load: float, seed: int
) -> Workload:
    """load: GPUs asked for in all, per GPU of the nodes. Raises InputError."""
    idle = Workload(tuple(nodes), ())
    wanted = load * idle.capacity_milli
    if not any(pod.gpu_milli for pod in pods):
        raise InputError("--pods", "no pod asks for a GPU, so no load can be reached")
    if not wanted:
        raise InputError("--nodes", "no node has a GPU")
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    shuffled = list(pods)
    chance.shuffle(shuffled)
    return Workload(idle.nodes, tuple(_until(wanted, shuffled, list(pods), chance)))


def _until(
    wanted: float, first: list[TracePod], all_pods: list[TracePod], chance: random.Random
) -> list[TracePod]:
    chosen: list[TracePod] = []
    asked = 0
    for pod in first:
        if asked >= wanted:
            return chosen
        chosen.append(pod)
        asked += pod.gpu_milli
    while asked < wanted:
        pod = chance.choice(all_pods)
        chosen.append(pod)
        asked += pod.gpu_milli
    return chosen
