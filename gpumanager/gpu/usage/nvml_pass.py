"""One pass over the GPUs of this machine: what NVML tells of their state and of their processes.

What the driver does not tell is left out, or None, but never taken for 0. Of a GPU that is split
into instances (MIG) the instances are asked, unless GPUs are named.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, TypeVar

import pynvml

from gpumanager.gpu.nvml import if_supported, is_split, text
from gpumanager.gpu.nvml_session import NvmlSession
from gpumanager.gpu.usage.process_memory import ProcessMemory, processes_of
from gpumanager.gpu.usage.samples import GpuUtilization, UtilizationByGpu
from gpumanager.gpu.usage.status import GpuStatus, status_of
from gpumanager.gpu.usage.utilization import UtilizationSampler
from gpumanager.gpu.values import GpuUUID, bare
from gpumanager.units import Bytes

T = TypeVar("T")

Gpus = frozenset[GpuUUID] | None
"""Bare UUIDs; None: all GPUs, and their instances."""
NO_GPUS = frozenset[GpuUUID]()


@dataclass(frozen=True, slots=True)
class NvmlQuery:
    """What is needed: the status of all GPUs or of none, and the processes and utilization samples
    of some."""

    status: bool = False
    processes: Gpus = NO_GPUS
    samples: Gpus = NO_GPUS

    def __or__(self, other: Self) -> Self:
        return replace(
            self,
            status=self.status or other.status,
            processes=_both(self.processes, other.processes),
            samples=_both(self.samples, other.samples),
        )


def _both(some: Gpus, others: Gpus) -> Gpus:
    return None if some is None or others is None else some | others


@dataclass(frozen=True, slots=True)
class NvmlReading:
    """What the driver answered. status: None where it was not asked.

    held, samples: by full UUIDs. held is complete for each GPU that it names; a GPU that it does
    not name may be lost, or hang. complete: whether no GPU was left out because it hangs. query:
    what was asked for, by all readers together. cost: seconds that it took.
    """

    status: Mapping[GpuUUID, GpuStatus] | None = None
    held: ProcessMemory = field(default_factory=dict)
    samples: UtilizationByGpu = field(default_factory=dict)
    complete: bool = True
    query: NvmlQuery = NvmlQuery()
    cost: float = 0.0


def lacks(reading: NvmlReading, gpus: Collection[GpuUUID]) -> bool:
    """Return whether the processes of one of these, by bare UUIDs, may be missing from a reading
    because a GPU hangs."""
    return not reading.complete and not set(map(bare, reading.held)).issuperset(gpus)


class NvmlPasses(NvmlSession):
    """NVML, kept open. hanging: indexes of GPUs that are not asked.

    gpu_asked: the index of the GPU that is being asked, for other threads; None between two.
    """

    def __init__(self, hanging: Collection[int] = ()) -> None:
        super().__init__()
        self._hanging = hanging
        self._sampler = UtilizationSampler()
        self._devices: dict[int, tuple[Any, GpuUUID]] = {}
        """By index."""
        self.gpu_asked: int | None = None

    def opened(self) -> None:
        self._devices.clear()

    def __call__(self, query: NvmlQuery) -> NvmlReading:
        """Make a pass; one thread at a time. A GPU that is lost is left out. Raises NvmlError."""
        return self.answer(partial(self._pass, query), "asking what the GPUs do")

    def _pass(self, query: NvmlQuery) -> NvmlReading:
        status: dict[GpuUUID, GpuStatus] = {}
        held: dict[GpuUUID, Mapping[int, Bytes | None]] = {}
        samples: dict[GpuUUID, GpuUtilization] = {}
        hanging = frozenset(self._hanging)
        for index in range(pynvml.nvmlDeviceGetCount()):
            if index in hanging:
                continue
            self.gpu_asked = index
            if query.status:
                status |= if_supported(partial(status_of, index), dict[GpuUUID, GpuStatus]())
            held |= self._ask(index, query.processes, lambda handle, _: processes_of(handle))
            samples |= self._ask(index, query.samples, self._sampler.ask)
            self.gpu_asked = None
        return NvmlReading(status if query.status else None, held, samples, not hanging)

    def _ask(
        self, index: int, gpus: Gpus, question: Callable[[Any, GpuUUID], T]
    ) -> dict[GpuUUID, T]:
        """Ask a GPU, if its bare UUID is one of these; return nothing where it is lost.

        None: each GPU, or its MIG devices. A UUID the library knows without asking the driver, but
        not whether a GPU is split. One that is named is not: such are granted to no container.
        """
        if gpus is not None and not gpus:
            return {}
        answers: dict[GpuUUID, T] = {}
        with suppress(pynvml.NVMLError):
            if index not in self._devices:
                device = pynvml.nvmlDeviceGetHandleByIndex(index)
                self._devices[index] = device, _uuid(device)
            device, uuid = self._devices[index]
            if gpus is None:
                for handle in _instances(device):
                    answers[_uuid(handle)] = question(handle, _uuid(handle))
            elif bare(uuid) in gpus:
                answers[uuid] = question(device, uuid)
            return answers
        return {}


def _uuid(handle: Any) -> GpuUUID:
    return GpuUUID(text(pynvml.nvmlDeviceGetUUID(handle)))


def _instances(device: Any) -> Iterator[Any]:
    """Yield the MIG devices of a GPU that has them; otherwise the GPU."""
    if not is_split(device):
        yield device
        return
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(device)):
        found = if_supported(
            partial(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, device, index), None
        )
        if found is not None:
            yield found
