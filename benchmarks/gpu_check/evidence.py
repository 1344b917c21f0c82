"""What a limited run showed: the program's own word, the manager's books, and the driver."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.memory import NvmlMeter
from gpumanager.gpu.values import GpuUUID
from gpumanager.virtual.manager import VirtualSockets
from gpumanager.virtual.values import AllocationID

LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Evidence:
    """told: what the workload said. limit, peak: bytes, of the books. denied: refusals there.
    launches: as far as they are counted, when a thread pays again. charged_ns: GPU time paid
    for. processes: how many were seen at the looks from outside; a short one may be missed.

    driver: the most bytes that the driver itself named for the processes of the run, all together;
    None where it names none, as in a container with pids of its own. degraded: VCUDA_DEGRADED_*.
    """

    told: Mapping[str, Any]
    limit: int
    peak: int
    denied: int
    launches: int
    charged_ns: int
    processes: int
    degraded: int
    driver: int | None

    @property
    def shim(self) -> bool:
        """The shim was loaded, and has kept books."""
        return bool(self.told.get("shim")) and self.peak + self.launches > 0


class Watch:
    """Looks at an allocation, from the outside, while a program runs in it."""

    def __init__(self, manager: VirtualSockets, allocation: AllocationID, gpu: GpuUUID) -> None:
        self._manager = manager
        self._allocation = allocation
        self._gpu = gpu
        self._seen: set[int] = set()
        self._most: int | None = None
        self._degraded = 0

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        looking = asyncio.create_task(self._look_on())
        try:
            yield
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

    def evidence(self, told: Mapping[str, Any]) -> Evidence:
        (device,) = self._manager.usage(self._allocation).devices
        return Evidence(
            told=told,
            limit=device.limit.memory,
            peak=device.peak,
            denied=device.denied,
            launches=device.launches,
            charged_ns=device.charged_ns,
            processes=len(self._seen),
            degraded=self._degraded,
            driver=self._most,
        )

    async def _look_on(self) -> None:
        with NvmlMeter() as meter:
            while True:
                await self._look(meter)
                await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, meter: NvmlMeter) -> None:
        processes = self._manager.usage(self._allocation).processes
        for process in processes:
            self._degraded |= process.degraded
        pids = {process.pid for process in processes}
        self._seen |= pids
        with suppress(GpuManagerError):
            held = (await asyncio.to_thread(meter)).get(self._gpu, {})
            sizes = [held[pid] or 0 for pid in pids if pid in held]
            if any(sizes):
                self._most = max(self._most or 0, sum(sizes))
