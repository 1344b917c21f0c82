"""How busy processes keep simulated GPUs, as their driver samples it: NVML's answer without NVML.

For who plays the manager beside the simulated GPUs, perhaps on a clock that NVML does not live by.
It tells what `gpumanager.gpu.utilization` would be told by the simulated NVML.
"""

from collections.abc import Callable
from typing import Final

from gpumanager.gpu.samples import Answer, Answers, Sample
from gpumanager.gpu.values import GpuUUID
from gpumanager.sim.gpu import SimulatedGpus

FOREIGN: Final = 1 << 22
"""No pid of Linux is as large."""


class SimulatedUtilization:
    """now: CLOCK_MONOTONIC, as the simulated GPUs have it. Each sample is told once.

    same_pids: whether it knows processes by the numbers that its reader does. To one in a pid
    namespace of its own it tells those of the host, and so of nobody that the reader has heard of.
    """

    def __init__(
        self, gpus: SimulatedGpus, now: Callable[[], int], *, same_pids: bool = True
    ) -> None:
        self._gpus = gpus
        self._now = now
        self._shift = 0 if same_pids else FOREIGN
        self._seen: dict[GpuUUID, int] = {}

    def __call__(self) -> Answers:
        samples: dict[GpuUUID, list[Sample]] = {
            gpu.uuid: [] for gpu in self._gpus.machine.topology.gpus
        }
        for occupant in self._gpus.processes():
            fresh = occupant.sampled_ns > self._seen.get(occupant.gpu, 0)
            if fresh and occupant.percent > 0:
                sample = Sample(occupant.pid + self._shift, occupant.sampled_ns, occupant.percent)
                samples[occupant.gpu].append(sample)
        for gpu, found in samples.items():
            newest = max((sample.ended_ns for sample in found), default=0)
            self._seen[gpu] = max(newest, self._seen.get(gpu, 0))
        now = self._now()
        busy = self._gpus.busy_percent
        return {gpu: Answer(now, tuple(found), busy(gpu)) for gpu, found in samples.items()}
