"""When the monitor asks the driver, and what. NVML takes locks that programs on the GPU wait for.

* Somebody reads (a scrape, an open web page): the status of all GPUs, and the processes and samples
  of those that containers share, once a period. The processes of other GPUs, for the audit and
  the count of processes, once a minute.
* Nobody reads: only the auditor looks, at the processes of shared GPUs, every five seconds. Where
  it has found something and is not sure yet, once a period.
* Nothing is shared and nobody reads: nothing.

Where NVML is slow all of that comes more rarely (`NvmlReader.interval`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from gpumanager.gpu.usage.nvml_pass import NvmlQuery
from gpumanager.gpu.values import GpuUUID

AUDIT_SECONDS: Final = 5.0
UNSHARED_SECONDS: Final = 60.0
STATUS_LASTS_SECONDS: Final = 60.0
"""What a GPU's status counts for between two scrapes."""


@dataclass(slots=True)
class Polling:
    """Each method that returns a question counts it as asked.

    period: seconds between two questions for readers. interval: lengthens a period
    where NVML is slow. unsure: whether the auditor waits for another look.
    """

    period: float
    interval: Callable[[float], float]
    unsure: Callable[[], bool] = lambda: False
    _read_at: float = -inf
    _audited_at: float = -inf
    _unshared_at: float = -inf

    def for_reader(
        self, now: float, shared: frozenset[GpuUUID], others: frozenset[GpuUUID]
    ) -> NvmlQuery | None:
        """None where the last answer is new enough. GPUs by their bare UUIDs."""
        if now - self._read_at < self.interval(self.period):
            return None
        self._read_at = self._audited_at = now
        if self.unsure() or now - self._unshared_at >= UNSHARED_SECONDS:
            self._unshared_at = now
            return NvmlQuery(status=True, processes=shared | others, samples=shared)
        return NvmlQuery(status=True, processes=shared, samples=shared)

    def for_auditor(
        self, now: float, shared: frozenset[GpuUUID], others: frozenset[GpuUUID]
    ) -> NvmlQuery | None:
        """None where there is nothing to audit yet."""
        unsure = self.unsure()
        asked = shared | others if unsure else shared
        apart = self.period if unsure else max(self.period, AUDIT_SECONDS)
        if not asked or now - self._audited_at < self.interval(apart):
            return None
        self._audited_at = now
        return NvmlQuery(processes=asked)
