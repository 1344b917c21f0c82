"""A virtual manager that asks callables instead of NVML."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from gpumanager.gpu.nvml_service import NvmlService
from gpumanager.gpu.usage.nvml_pass import NvmlQuery, NvmlReading
from gpumanager.gpu.usage.process_memory import ProcessMemory
from gpumanager.gpu.usage.samples import UtilizationByGpu
from gpumanager.gpu.values import GpuUUID
from gpumanager.limits.manager import VirtualManager

Meter = Callable[[Collection[GpuUUID]], ProcessMemory]
Utilization = Callable[[Collection[GpuUUID]], UtilizationByGpu]


class MeteredManager(VirtualManager):
    """meter: tells what processes hold; None: nobody does. utilization: how busy they keep GPUs."""

    def __init__(
        self,
        root: Path,
        *,
        meter: Meter | None = None,
        utilization: Utilization | None = None,
        **options: Any,
    ) -> None:
        nvml = nvml_of(meter, utilization) if meter or utilization else None
        super().__init__(root, nvml=nvml, **options)


Manage = Callable[..., MeteredManager]
"""How tests begin a manager with options of theirs; all are stopped in the end."""


def nvml_of(
    meter: Meter | None = None, utilization: Utilization | None = None, **options: Any
) -> NvmlService:
    def answer(query: NvmlQuery) -> NvmlReading:
        gpus = query.processes or frozenset()
        return NvmlReading(
            held=meter(gpus) if meter and gpus else {},
            samples=utilization(query.samples) if utilization and query.samples else {},
            complete=not getattr(meter, "hanging", False),
        )

    return NvmlService(answer, **options)
