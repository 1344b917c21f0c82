"""One pass over the GPUs of this machine: what NVML tells of their state and of their processes.

What the driver does not tell is left out, or None, but never taken for 0. Of a GPU that is split
into instances (MIG) the instances are asked, unless GPUs are named.

Two functions tell how busy processes keep a GPU; which of them a driver knows depends on its age.
NVML stamps samples with the time of day in microseconds, which may be set; a cursor per GPU, in
those very units, asks for what is strictly newer. Buffers of real drivers hold remains of processes
long gone, and figures above 100: those are dropped.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Self, TypeVar

import pynvml

from gpumanager.gpu.nvml import if_supported, is_split, uuid_of
from gpumanager.gpu.nvml_session import NvmlSession
from gpumanager.gpu.usage.process_memory import COMPUTE, ProcessMemory, processes_of, running
from gpumanager.gpu.usage.samples import GpuUtilization, ProcessSample, UtilizationByGpu
from gpumanager.gpu.values import GpuUUID, bare
from gpumanager.units import Bytes

T = TypeVar("T")

Gpus = frozenset[GpuUUID] | None
"""Bare UUIDs; None: all GPUs, and their instances."""
NO_GPUS = frozenset[GpuUUID]()

PERCENT: Final = 100
QUESTIONS: Final[tuple[str, ...]] = (
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetProcessesUtilizationInfo",
)
LOOK_BACK_US: Final = 1_000_000
"""How old a sample may be at the first question."""

_NOBODY: Final = {pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND}
_NEVER: Final = {
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_NO_PERMISSION,
}


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
class GpuStatus:
    """How a GPU is. percent: of the last sample period with a kernel running, 0 to 100."""

    memory_used: Bytes
    percent: int | None = None
    temperature_celsius: int | None = None
    power_milliwatts: int | None = None


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
        self._seen: dict[GpuUUID, int] = {}
        """Stamp of the newest sample of each GPU."""
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
                status |= if_supported(partial(_status_of, index), dict[GpuUUID, GpuStatus]())
            held |= self._ask(index, query.processes, lambda handle, _: processes_of(handle))
            samples |= self._ask(index, query.samples, self._utilization)
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
                self._devices[index] = device, uuid_of(device)
            device, uuid = self._devices[index]
            if gpus is None:
                for handle in _instances(device):
                    answers[uuid_of(handle)] = question(handle, uuid_of(handle))
            elif bare(uuid) in gpus:
                answers[uuid] = question(device, uuid)
            return answers
        return {}

    def _utilization(self, handle: Any, gpu: GpuUUID) -> GpuUtilization:
        """Return what is newer than the last answer. Raises pynvml.NVMLError."""
        now_us, now_ns = time.time_ns() // 1000, time.monotonic_ns()
        seen = self._seen.get(gpu, 0)
        if not now_us - 10 * LOOK_BACK_US < seen <= now_us + LOOK_BACK_US:  # or the time was set
            seen = now_us - LOOK_BACK_US
        rows = _newer_than(handle, seen)
        if rows is None:
            return GpuUtilization(now_ns, None)
        sound = [
            row
            for row in rows
            if row.pid > 0
            and row.smUtil <= PERCENT
            and seen < row.timeStamp <= now_us + LOOK_BACK_US
        ]
        self._seen[gpu] = max((int(row.timeStamp) for row in sound), default=seen)
        offset_ns = now_ns - now_us * 1000
        samples = tuple(
            ProcessSample(int(row.pid), int(row.timeStamp) * 1000 + offset_ns, int(row.smUtil))
            for row in sound
        )
        rates = None
        if samples:
            rates = if_supported(partial(pynvml.nvmlDeviceGetUtilizationRates, handle), None)
        busy = None if rates is None or not 0 <= rates.gpu <= PERCENT else int(rates.gpu)
        return GpuUtilization(now_ns, samples, busy)


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


def _status_of(index: int) -> dict[GpuUUID, GpuStatus]:
    """Return a GPU's status by its UUID. Raises pynvml.NVMLError."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    second = partial(pynvml.nvmlDeviceGetMemoryInfo, handle, version=pynvml.nvmlMemory_v2)
    try:
        # What processes hold; in the first form's answer what the driver keeps is part of it.
        used = int((if_supported(second, None) or pynvml.nvmlDeviceGetMemoryInfo(handle)).used)
    except pynvml.NVMLError_NotSupported:
        # The GPU has no such figure: its memory is the machine's.
        used = sum(one.usedGpuMemory or 0 for one in running(COMPUTE, handle))
    heat = partial(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    rates = if_supported(partial(pynvml.nvmlDeviceGetUtilizationRates, handle), None)
    status = GpuStatus(
        memory_used=Bytes(used),
        percent=None if rates is None else min(int(rates.gpu), PERCENT),
        temperature_celsius=if_supported(heat, None),
        power_milliwatts=if_supported(partial(pynvml.nvmlDeviceGetPowerUsage, handle), None),
    )
    return {uuid_of(handle): status}


def _newer_than(handle: Any, stamp: int) -> list[Any] | None:
    """Return rows as NVML has them; None where it never does. Raises pynvml.NVMLError."""
    for name in QUESTIONS:
        question: Callable[[Any, int], list[Any]] = getattr(pynvml, name)
        try:
            try:
                return question(handle, stamp)
            except pynvml.NVMLError_InsufficientSize:
                # A process has come between NVML's count and its list.
                return question(handle, stamp)
        except pynvml.NVMLError as error:
            if error.value in _NOBODY:
                return []
            if error.value not in _NEVER:
                raise
    return None
