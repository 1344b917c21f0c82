"""What NVML reports by itself, and what it answers when GPUs are asked how they are. Blocking.

Events come through an event set, waited on with a bound. Where a GPU or its driver has none, the
wait is only a pause and probing tells. A GPU that cannot be asked is a finding; a library that
cannot is an NvmlError, after which everything is opened anew.
"""

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Protocol

import pynvml

from gpumanager.gpu.health.state import HealthEvent, ProbeResult
from gpumanager.gpu.nvml import SPLIT, if_supported, is_split, own_memory, uuid_of
from gpumanager.gpu.nvml_session import NvmlSession
from gpumanager.gpu.values import GpuUUID

log = logging.getLogger(__name__)

RECOVERY_FIELD: Final = getattr(pynvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", 230)
RECOVERIES: Final = {
    1: "reset this GPU",
    2: "reboot this machine",
    3: "drain its peer-to-peer traffic",
    4: "drain and reset this GPU",
    5: "recover its IMEX domain",
    6: "reset its bus",
    7: "reboot this system",
}
"""What a driver of today says a GPU needs (nvmlDeviceGpuRecoveryAction_t); 0: nothing."""

_XID: Final = pynvml.nvmlEventTypeXidCriticalError
_MEMORY: Final = pynvml.nvmlEventTypeDoubleBitEccError

_NEVER: Final = {pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED}

_PROBLEMS: Final = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "it has fallen off the bus",
    pynvml.NVML_ERROR_RESET_REQUIRED: "it needs a reset",
    pynvml.NVML_ERROR_NOT_FOUND: "the driver does not know it any more",
}


class HealthSource(Protocol):
    """Asked from one thread. Every method may block as long as NVML does, and raises NvmlError."""

    def gpus(self) -> tuple[GpuUUID, ...]:
        """Return those that can be asked."""

    def wait(self, seconds: float) -> tuple[HealthEvent, ...]:
        """Return what happened since the last time; wait for it no longer than `seconds`."""

    def tells_events(self) -> bool:
        """Return whether any GPU reports events."""

    def probe(self, gpu: GpuUUID) -> ProbeResult:
        """Return how it is."""

    def reopen(self) -> None:
        """See what has come since NVML was opened."""

    def close(self) -> None:
        """Let go of NVML."""


class NvmlHealth(NvmlSession):
    """The driver's. pause: how to wait where there are no events."""

    def __init__(self, pause: Callable[[float], object] = time.sleep) -> None:
        super().__init__()
        self._pause = pause
        self._set: Any = None
        self._registered: set[GpuUUID] = set()
        self._without: set[GpuUUID] = set()

    def opened(self) -> None:
        """Forget the event set: it went with the library that is closed."""
        self._forget_events()

    def gpus(self) -> tuple[GpuUUID, ...]:
        return self.answer(_gpus, "counting the GPUs")

    def wait(self, seconds: float) -> tuple[HealthEvent, ...]:
        waiting = partial(self._wait, round(seconds * 1000))
        events = self.answer(waiting, "waiting for events of the GPUs")
        if events is None:
            self._pause(seconds)
        return events or ()

    def tells_events(self) -> bool:
        return bool(self._registered)

    def probe(self, gpu: GpuUUID) -> ProbeResult:
        finding = self.answer(partial(_probe, gpu), f"asking {gpu} how it is")
        if not finding.problem:
            self.answer(partial(self._register, (gpu,)), f"asking for the events of {gpu}")
        return finding

    def _wait(self, milliseconds: int) -> tuple[HealthEvent, ...] | None:
        """Wait for one event; return None where there is nothing to wait for."""
        if self._set is None:
            self._register(_gpus())
        if not self._registered:
            return None
        try:
            event = pynvml.nvmlEventSetWait_v2(self._set, milliseconds)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_TIMEOUT:
                return ()
            if error.value in _NEVER:
                log.info("this driver reports no events; the agent only polls the health of GPUs")
                self._registered, self._without = set(), self._without | self._registered
                return None
            if error.value != pynvml.NVML_ERROR_GPU_IS_LOST:
                raise
            # A GPU that is lost ends every wait for its set: make another without it.
            if_supported(partial(pynvml.nvmlEventSetFree, self._set), None)
            self._forget_events()
            return (HealthEvent(None),)
        gpu = if_supported(partial(uuid_of, event.device), None)
        if event.eventType == _XID:
            return (HealthEvent(gpu, int(event.eventData)),)
        return (HealthEvent(gpu),) if event.eventType == _MEMORY else ()

    def _forget_events(self) -> None:
        self._set, self._registered, self._without = None, set(), set()

    def _register(self, gpus: Iterable[GpuUUID]) -> None:
        if self._set is None:
            self._set = if_supported(pynvml.nvmlEventSetCreate, None)
        if self._set is None:
            return
        for gpu in gpus:
            if gpu in self._registered | self._without:
                continue
            try:
                device = _device(gpu)
                types = pynvml.nvmlDeviceGetSupportedEventTypes(device) & (_XID | _MEMORY)
                if types:
                    pynvml.nvmlDeviceRegisterEvents(device, types, self._set)
                    self._registered.add(gpu)
                    continue
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_NOT_SUPPORTED:
                    continue  # it may be lost: the next good probe registers it
            self._without.add(gpu)
            log.info("%s reports no events; the agent only polls its health", gpu)


def _gpus() -> tuple[GpuUUID, ...]:
    found = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        device = if_supported(partial(pynvml.nvmlDeviceGetHandleByIndex, index), None)
        known = device is not None and not is_split(device)
        uuid = if_supported(partial(uuid_of, device), None) if known else None
        found += [] if uuid is None else [uuid]
    return tuple(found)


def _probe(gpu: GpuUUID) -> ProbeResult:
    """Probe a GPU. Raises pynvml.NVMLError only where the library answers nothing at all."""
    try:
        device = _device(gpu)
        own_memory(device)
    except pynvml.NVMLError as error:
        pynvml.nvmlDeviceGetCount()
        return ProbeResult(problem=_PROBLEMS.get(error.value, f"NVML answers: {error}"))
    if is_split(device):
        return ProbeResult(problem=SPLIT)
    kinds = (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
    errors = if_supported(partial(pynvml.nvmlDeviceGetTotalEccErrors, device, *kinds), None)
    # Rows since Ampere: corrected, uncorrected, pending, failed. Pages before.
    rows = if_supported(partial(pynvml.nvmlDeviceGetRemappedRows, device), (0, 0, 0, 0))
    pages = partial(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, device)
    values = if_supported(partial(pynvml.nvmlDeviceGetFieldValues, device, [RECOVERY_FIELD]), None)
    answered = values is not None and values[0].nvmlReturn == pynvml.NVML_SUCCESS
    action = int(values[0].value.uiVal) if answered else 0
    return ProbeResult(
        double_bits=None if errors is None else int(errors),
        remap_pending=bool(rows[2] or if_supported(pages, 0)),
        remap_failed=bool(rows[3]),
        recovery=RECOVERIES.get(action, f"recovery action {action}") if action else "",
    )


def _device(gpu: GpuUUID) -> Any:
    return pynvml.nvmlDeviceGetHandleByUUID(gpu.encode())
