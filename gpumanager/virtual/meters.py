"""The meters of an allocation as readings: what its processes were charged, and how they waited.

Read ten times a second for every container of the node. What a limit says is put into a reader's
terms once, and again when it is changed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.compute.values import Reading
from gpumanager.gpu.values import GpuUUID, bare
from gpumanager.units import CORES_PER_GPU
from gpumanager.virtual.books import Books
from gpumanager.virtual.values import AllocationID, Limit
from vcuda_shim._shim import lib

BURST_US: Final[int] = lib.LIMITER_BURST_US
"""Where the configuration leaves it to the shim."""


@dataclass(frozen=True, slots=True)
class _Device:
    holder: tuple[str, int]
    gpu: GpuUUID
    promise: float
    ceiling: float
    burst_ns: int
    words: Any

    def read(self, pids: frozenset[int]) -> Reading:
        words = self.words
        return Reading(
            holder=self.holder,
            gpu=self.gpu,
            promise=self.promise,
            ceiling=self.ceiling,
            burst_ns=self.burst_ns,
            pids=pids,
            paid_until=words.virtual_time,
            charged_ns=words.charged_ns,
            throttled_ns=words.throttled_ns,
            throttled=words.throttled,
            launches=words.launches,
        )


class Meters:
    """Of the devices that are granted; one that is withdrawn is not read."""

    def __init__(self, allocation: AllocationID, limits: Sequence[Limit], books: Books) -> None:
        self._devices = tuple(
            _Device(
                holder=(allocation, place),
                gpu=bare(limit.gpu),
                promise=limit.cores / CORES_PER_GPU,
                ceiling=min(limit.ceiling, CORES_PER_GPU) / CORES_PER_GPU,
                burst_ns=(limit.burst_us or BURST_US) * 1000,
                words=books.words.meters[place],
            )
            for place, limit in enumerate(limits)
            if limit.cores > 0
        )

    def read(self, pids: frozenset[int]) -> Iterator[Reading]:
        """pids: of the processes of the allocation, as the host calls them."""
        for device in self._devices:
            yield device.read(pids)
