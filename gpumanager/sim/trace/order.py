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
    """Order the pods; raises InputError. load: GPUs asked for in all, per GPU of the nodes."""
    idle = Workload(tuple(nodes), ())
    wanted = load * idle.capacity_milli
    if not any(pod.gpu_milli for pod in pods):
        raise InputError("--pods", "no pod asks for a GPU, so no load can be reached")
    if not wanted:
        raise InputError("--nodes", "no node has a GPU")
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    shuffled = list(pods)
    chance.shuffle(shuffled)
    chosen: list[TracePod] = []
    asked = 0
    while asked < wanted:
        pod = shuffled[len(chosen)] if len(chosen) < len(shuffled) else chance.choice(pods)
        chosen.append(pod)
        asked += pod.gpu_milli
    return Workload(idle.nodes, tuple(chosen))
