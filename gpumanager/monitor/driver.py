"""The driver's answers for the monitor: one question at a time, one thread, one bound.

NVML may hang. Nobody waits for it longer than the bound, and it is not asked again before it has
answered: until then nothing new is known of GPUs, and everything else goes on.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.daemon_thread import DaemonThreadExecutor
from gpumanager.gpu.usage.process_memory import NvmlMeter
from gpumanager.gpu.usage.status import NvmlStatus
from gpumanager.gpu.usage.utilization import NvmlUtilization
from gpumanager.gpu.values import GpuUUID, bare
from gpumanager.monitor.ports import DriverAnswer, DriverQuery, DriverReader, Held

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.8


class NvmlDriver:
    """NVML, kept open. Implements `ports.Driver`."""

    def __init__(self) -> None:
        self._status, self._held, self._busy = NvmlStatus(), NvmlMeter(), NvmlUtilization()

    def __call__(self, question: DriverQuery) -> DriverAnswer:
        """Raises NvmlError."""
        asked, sampled = question.processes, question.samples
        return DriverAnswer(
            status=self._status() if question.status else None,
            held=self._held_on(asked),
            busy=self._busy(sampled) if sampled else {},
        )

    def _held_on(self, gpus: Collection[GpuUUID]) -> Held:
        """By their bare UUIDs. One that does not answer may be lost: nothing is on it."""
        told = {bare(gpu): pids for gpu, pids in self._held(gpus).items()} if gpus else {}
        return {gpu: told.get(gpu, {}) for gpu in gpus}


class PatientDriver:
    """One question at a time, none waited for longer than `seconds`.

    cost: seconds that the last answer took.
    """

    def __init__(
        self,
        driver: DriverReader,
        seconds: float = LOOK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._driver = driver
        self._seconds = seconds
        self._clock = clock
        self._thread = DaemonThreadExecutor("monitor")
        self._asked: asyncio.Future[DriverAnswer] | None = None
        self._complained = False
        self.cost = 0.0

    async def ask(self, question: DriverQuery) -> DriverAnswer | None:
        """None where it does not answer now; an answer that comes late is had by the next."""
        if self._asked is None:
            loop = asyncio.get_running_loop()
            self._asked = loop.run_in_executor(self._thread, partial(self._timed, question))
            self._asked.add_done_callback(_read)
        done, _ = await asyncio.wait((self._asked,), timeout=self._seconds)
        if not done:
            self.cost = self._seconds
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

    def _timed(self, question: DriverQuery) -> DriverAnswer:
        """In its thread."""
        begun = self._clock()
        try:
            return self._driver(question)
        finally:
            self.cost = self._clock() - begun

    def _complain(self, cause: object) -> None:
        """Once, until it works again."""
        if not self._complained:
            log.warning("NVML does not answer; metrics are served without its values: %s", cause)
        self._complained = True


def _read(done: "asyncio.Future[DriverAnswer]") -> None:
    """There may be no reader left for its failure."""
    if not done.cancelled():
        done.exception()
