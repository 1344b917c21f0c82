"""What a limited run showed: the program's own word, the manager's books, and the driver."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from gpu_check.clock import Clock, opened
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.usage.nvml_pass import NvmlPasses, NvmlQuery
from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.pages.books import DEGRADATIONS

LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Evidence:
    """told: what the workload said. limit, peak: bytes, of the books. denied: refusals there.
    launches: as far as they are counted, when a thread pays again. charged_ns: GPU time paid
    for. processes: how many were seen at the looks from outside; a short one may be missed.

    driver: the most bytes that the driver itself named for the processes of the run, all together;
    None where it names none: in gVisor, in MIG. gpu: the most bytes by which what the GPU has in
    use grew in the run, managed memory and the driver's own included; None where NVML does not say.
    degraded: names of VCUDA_DEGRADED_*.
    """

    told: Mapping[str, Any]
    limit: int
    peak: int
    denied: int
    launches: int
    charged_ns: int
    processes: int
    degraded: frozenset[str]
    driver: int | None
    gpu: int | None = None

    @property
    def shim(self) -> bool:
        """The shim was loaded, and has kept books."""
        return bool(self.told.get("shim")) and self.peak + self.launches > 0


class Watch:
    """Looks at an allocation, from the outside, while a program runs in it."""

    def __init__(self, manager: VirtualManager, allocation: AllocationID, gpu: GpuUUID) -> None:
        self._manager = manager
        self._allocation = allocation
        self._gpu = gpu
        self._seen: set[int] = set()
        self._most: int | None = None
        self._before: int | None = None
        self._grown: int | None = None
        self._degraded: frozenset[str] = frozenset()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        looking = asyncio.create_task(self._look_on())
        try:
            yield
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

    def evidence(self, told: Mapping[str, Any], limit: int) -> Evidence:
        """limit: what was asked for, whatever the manager made of it."""
        (device,) = self._manager.usage(self._allocation).devices
        return Evidence(
            told=told,
            limit=limit,
            peak=device.peak,
            denied=device.denied,
            launches=device.launches,
            charged_ns=device.charged_ns,
            processes=len(self._seen),
            degraded=self._degraded,
            driver=self._most,
            gpu=self._grown,
        )

    async def _look_on(self) -> None:
        async with opened(self._gpu) as clock:
            with NvmlPasses() as meter:
                while True:
                    await self._look(meter)
                    await self._look_at_gpu(clock)
                    await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, meter: NvmlPasses) -> None:
        processes = self._manager.usage(self._allocation).processes
        for process in processes:
            self._degraded |= {name for bit, name in DEGRADATIONS.items() if process.degraded & bit}
        pids = {process.pid for process in processes}
        self._seen |= pids
        with suppress(GpuManagerError):
            reading = await asyncio.to_thread(meter, NvmlQuery(processes=None))
            held = reading.held.get(self._gpu, {})
            sizes = [held[pid] or 0 for pid in pids if pid in held]
            if any(sizes):
                self._most = max(self._most or 0, sum(sizes))

    async def _look_at_gpu(self, clock: Clock) -> None:
        with suppress(GpuManagerError):
            used = await asyncio.to_thread(clock.used)
            self._before = used if self._before is None else self._before
            self._grown = max(self._grown or 0, used - self._before)
