"""How busy processes keep simulated GPUs, as their driver samples it: NVML's answer without NVML.

For who plays the manager beside the simulated GPUs, perhaps on a clock that NVML does not live by.
`gpumanager.gpu.usage.nvml_pass` would be told the same by the simulated NVML, which answers
from the same account (native/sim/core/period.h).
"""

from collections.abc import Callable
from typing import Final

from gpumanager.gpu.usage.samples import GpuUtilization, ProcessSample, UtilizationByGpu
from gpumanager.gpu.values import GpuUUID
from gpumanager.sim.gpu import SimulatedGpus

FOREIGN: Final = 1 << 22
"""No pid of Linux is as large."""

LOOK_BACK_NS: Final = 1_000_000_000
"""How old a sample may be at the first question."""


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

    def __call__(self) -> UtilizationByGpu:
        found = {}
        for uuid in (gpu.uuid for gpu in self._gpus.machine.topology.gpus):
            now = self._now()
            seen = self._seen.setdefault(uuid, max(0, now - LOOK_BACK_NS))
            samples = None
            if (rows := self._gpus.utilization(uuid, seen)) is not None:
                self._seen[uuid] = max((row.sampled_ns for row in rows), default=seen)
                samples = tuple(
                    ProcessSample(row.pid + self._shift, row.sampled_ns, row.percent)
                    for row in rows
                )
            found[uuid] = GpuUtilization(now, samples, self._gpus.busy_percent(uuid))
        return found
