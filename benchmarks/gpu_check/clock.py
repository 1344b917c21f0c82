"""The SM clock of the GPU while something runs, from outside."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from statistics import mean
from typing import Final

import pynvml

from gpumanager.gpu.nvml import ask, if_supported, text
from gpumanager.gpu.values import GpuUUID

LOOK_SECONDS: Final = 0.1


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


def model_of(gpu: GpuUUID) -> str:
    """Its name; raises NvmlError."""
    ask(pynvml.nvmlInit, "opening NVML")
    try:
        handle = ask(partial(pynvml.nvmlDeviceGetHandleByUUID, gpu.encode()), f"asking for {gpu}")
        return text(ask(partial(pynvml.nvmlDeviceGetName, handle), f"asking for {gpu}'s name"))
    finally:
        pynvml.nvmlShutdown()
