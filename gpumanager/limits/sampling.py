"""How busy processes keep the GPUs, asked of the driver again and again: one sampler for the node.

NVML may hang, so it is asked in a thread of its own, and nobody waits for it longer than a bound:
while it does not answer, nothing new is known, and that is all.

NVML takes locks that programs on the GPU wait for, too. So only GPUs that containers share are
asked, and no more often than that a hundredth of the time passes in the driver (`poll_interval`).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final, Protocol

from gpumanager.errors import GpuManagerError, words_of
from gpumanager.gpu.daemon_thread import DaemonThreadExecutor
from gpumanager.gpu.poll_interval import poll_interval
from gpumanager.gpu.usage.samples import GpuUtilization, UtilizationByGpu
from gpumanager.gpu.values import GpuUUID

log = logging.getLogger(__name__)

SAMPLE_SECONDS: Final = 0.5
"""A sample names one process, so a few are as good as all."""

PASS_SECONDS: Final = 0.8


class UtilizationMeter(Protocol):
    """Asks the driver, in a thread; raises GpuManagerError where it cannot answer.

    Each sample is told once.
    """

    def __call__(self, gpus: Collection[GpuUUID], /) -> UtilizationByGpu:
        """gpus: those to ask, by their bare UUIDs."""


class Sampling:
    """One question at a time. What was answered waits here until it is taken."""

    def __init__(self, meter: UtilizationMeter, *, pass_seconds: float = PASS_SECONDS) -> None:
        self._meter = meter
        self._pass_seconds = pass_seconds
        self._thread = DaemonThreadExecutor("sampling")
        self._running: asyncio.Future[UtilizationByGpu] | None = None
        self._answers: dict[GpuUUID, GpuUtilization] = {}
        self._complained = False
        self._cost = 0.0

    async def sample_every(self, seconds: float, wanted: Callable[[], Collection[GpuUUID]]) -> None:
        """Until cancelled; only the GPUs that are wanted, and not while there is none."""
        while True:
            if gpus := wanted():
                await self.sample(gpus)
            await asyncio.sleep(poll_interval(seconds, self._cost))

    async def sample(self, gpus: Collection[GpuUUID]) -> None:
        """Ask once, or go on waiting for an answer that did not come in time."""
        if self._running is None:
            loop = asyncio.get_running_loop()
            self._running = loop.run_in_executor(self._thread, self._ask, gpus)
        try:
            async with asyncio.timeout(self._pass_seconds):
                answers = await asyncio.shield(self._running)
        except TimeoutError as error:
            self._complain(error)
            return
        except GpuManagerError as error:
            self._running = None
            self._complain(error)
            return
        self._running = None
        self._complained = False
        self._keep(answers)

    def _ask(self, gpus: Collection[GpuUUID]) -> UtilizationByGpu:
        """In its thread."""
        begun = time.monotonic()
        try:
            return self._meter(gpus)
        finally:
            self._cost = time.monotonic() - begun

    def take(self) -> UtilizationByGpu:
        """What was answered since the last time."""
        taken, self._answers = self._answers, {}
        return taken

    def close(self) -> None:
        """Its thread ends after what is under way."""
        self._thread.shutdown()

    def _keep(self, answers: UtilizationByGpu) -> None:
        for gpu, answer in answers.items():
            earlier = self._answers.get(gpu)
            self._answers[gpu] = answer if earlier is None else _joined(earlier, answer)

    def _complain(self, error: Exception) -> None:
        """Once, until it works again."""
        if not self._complained:
            log.warning("cannot read the GPU utilization of processes: %s", words_of(error))
        self._complained = True


def _joined(earlier: GpuUtilization, later: GpuUtilization) -> GpuUtilization:
    """Two answers that nobody took in between."""
    if earlier.samples is None or later.samples is None:
        return later
    return replace(later, samples=earlier.samples + later.samples)
