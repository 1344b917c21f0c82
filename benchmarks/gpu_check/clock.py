"""What the driver tells of the GPU from outside: its clock while something runs, its name, and
whether others use it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from statistics import mean
from typing import Final

import pynvml

from gpumanager.gpu.nvml import ask, if_supported
from gpumanager.gpu.values import GpuUUID

LOOK_SECONDS: Final = 0.1
BUSY_LOOKS, STALE_SECONDS = 10, 1.2
"""The driver's figure is of the second before."""


@dataclass(frozen=True, slots=True)
class Seen:
    """MHz, look by look; none where the driver does not tell."""

    looks: list[int] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """0 where it is not known."""
        return mean(self.looks) if self.looks else 0.0


@dataclass(frozen=True, slots=True)
class Clock:
    """NVML stays open as long as `opened` is."""

    handle: object

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[Seen]:
        seen = Seen()
        looking = asyncio.create_task(self._look_on(seen))
        try:
            yield seen
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

    async def others(self, looks: int = BUSY_LOOKS) -> tuple[int | None, int]:
        """How busy the GPU is at most, in percent, where NVML says, and how many processes it has.
        Not in its first second, which is still that of the programs before.
        """
        rates = partial(pynvml.nvmlDeviceGetUtilizationRates, self.handle)
        processes = partial(pynvml.nvmlDeviceGetComputeRunningProcesses, self.handle)
        busiest = None
        await asyncio.sleep(STALE_SECONDS)
        for _ in range(looks):
            seen = await asyncio.to_thread(if_supported, rates, None)
            busiest = busiest if seen is None else max(busiest or 0, int(seen.gpu))
            await asyncio.sleep(LOOK_SECONDS)
        return busiest, len(if_supported(processes, []))

    def used(self) -> int:
        """Bytes of the GPU that are in use; raises NvmlError."""
        memory = partial(pynvml.nvmlDeviceGetMemoryInfo, self.handle)
        return int(ask(memory, "asking what of the GPU is in use").used)

    async def _look_on(self, seen: Seen) -> None:
        question = partial(pynvml.nvmlDeviceGetClockInfo, self.handle, pynvml.NVML_CLOCK_SM)
        while True:
            clock = await asyncio.to_thread(if_supported, question, 0)
            if clock > 0:
                seen.looks.append(clock)
            await asyncio.sleep(LOOK_SECONDS)


@asynccontextmanager
async def opened(gpu: GpuUUID) -> AsyncIterator[Clock]:
    """Raises NvmlError."""
    ask(pynvml.nvmlInit, "opening NVML")
    try:
        find = partial(pynvml.nvmlDeviceGetHandleByUUID, gpu.encode())
        yield Clock(ask(find, f"asking for {gpu}"))
    finally:
        pynvml.nvmlShutdown()
