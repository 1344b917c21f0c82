"""The driver's answers for the monitor: three questions, one thread, one bound.

NVML may hang. Nobody waits for it longer than the bound, and it is not asked again before it has
answered: until then nothing new is known of GPUs, and everything else goes on.
"""

import asyncio
import logging
from typing import Final

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.memory import NvmlMeter
from gpumanager.gpu.own_thread import OwnThread
from gpumanager.gpu.status import NvmlStatus
from gpumanager.gpu.utilization import NvmlUtilization
from gpumanager.monitor.ports import Driver, Told

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.8


class NvmlDriver:
    """NVML, kept open. Implements `ports.Driver`."""

    def __init__(self) -> None:
        self._status, self._held, self._busy = NvmlStatus(), NvmlMeter(), NvmlUtilization()

    def __call__(self) -> Told:
        """Raises NvmlError."""
        return Told(status=self._status(), held=self._held(), busy=self._busy())


class PatientDriver:
    """One question at a time, none waited for longer than `seconds`."""

    def __init__(self, driver: Driver, seconds: float = LOOK_SECONDS) -> None:
        self._driver = driver
        self._seconds = seconds
        self._thread = OwnThread("monitor")
        self._asked: asyncio.Future[Told] | None = None
        self._complained = False

    async def ask(self) -> Told | None:
        """None where it does not answer now; an answer that comes late is had by the next."""
        if self._asked is None:
            loop = asyncio.get_running_loop()
            self._asked = loop.run_in_executor(self._thread, self._driver)
            self._asked.add_done_callback(_read)
        done, _ = await asyncio.wait((self._asked,), timeout=self._seconds)
        if not done:
            self._complain("no answer")
            return None
        asked, self._asked = self._asked, None
        try:
            told = asked.result()
        except GpuManagerError as error:
            self._complain(error)
            return None
        self._complained = False
        return told

    def close(self) -> None:
        self._thread.shutdown()

    def _complain(self, cause: object) -> None:
        """Once, until it works again."""
        if not self._complained:
            log.warning("metrics are without what NVML tells: %s", cause)
        self._complained = True


def _read(done: "asyncio.Future[Told]") -> None:
    """Nobody may be left who reads its failure."""
    if not done.cancelled():
        done.exception()
