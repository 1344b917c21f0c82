"""Pods come and go: what is given away once nobody stays for ever.

Into an empty cluster pods come one at a time, drawn from the workload. When those that are there
would ask for more than the load, pods leave first, drawn by chance from those that came, whether
they had found a place or not. So the load stays the same, and the allocated part converges.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from gpumanager.sim.trace.replay import Replay, Spot
from gpumanager.sim.trace.values import Step, TracePod


@dataclass(slots=True)
class Churn:
    """load: GPUs asked for by those that are there, per GPU of the nodes."""

    replay: Replay
    load: float

    def run(self, pods: int) -> Iterator[Step]:
        """Yield the steps of so many pods; raises ValueError where the load is below a pod."""
        chance = random.Random(f"churn {self.replay.seed}")  # noqa: S311 - repeatable, not secret
        most = self.load * self.replay.workload.capacity_milli
        there: list[tuple[TracePod, Spot | None]] = []
        asked = given = 0
        for _ in range(pods):
            pod = chance.choice(self.replay.workload.pods)
            while there and asked + pod.gpu_milli > most:
                drawn = chance.randrange(len(there))
                there[drawn], there[-1] = there[-1], there[drawn]
                gone, spot = there.pop()
                self.replay.remove(gone.ask, spot)
                asked -= gone.gpu_milli
                given -= gone.gpu_milli if spot is not None else 0
            spot = self.replay.place(pod.ask)
            there.append((pod, spot))
            asked += pod.gpu_milli
            given += pod.gpu_milli if spot is not None else 0
            yield Step(asked, given, spot is not None)
