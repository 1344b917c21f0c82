"""The one thread that asks NVML about health: it waits for events and, now and then, probes.

It is not the thread of `nvml_service`: it waits in NVML for a second at a time, for which no shim
could wait, and it has to find out which GPU hangs while the other one hangs at it.

NVML may hang for as long as it likes: nobody waits for this thread, and it says what it is asking,
so that its watcher knows what does not answer. It is a daemon: a call that hangs does not
keep the agent from ending.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from gpumanager.gpu.health.events import HealthSource
from gpumanager.gpu.health.state import HealthEvent, ProbeResult
from gpumanager.gpu.nvml import NvmlError
from gpumanager.gpu.nvml_service import poll_interval
from gpumanager.gpu.values import GpuUUID

log = logging.getLogger(__name__)

T = TypeVar("T")

LIBRARY: Final = None
"""What is asked where it is no GPU."""

LEAST_PAUSE: Final = 1.0
"""Seconds between a round and one that an event asks for."""


@dataclass(frozen=True, slots=True)
class ProbeTiming:
    """Seconds. probe: between two rounds. wait: for events, at a time. retry: after NVML failed.

    longest: between two rounds where NVML is slow. silent: a question that takes longer is one that
    is not answered. look: between two looks whether there is one. reopen: rounds with a GPU that
    cannot be asked, until NVML is opened anew.
    """

    probe: float = 10.0
    wait: float = 1.0
    retry: float = 2.0
    silent: float = 10.0
    look: float = 1.0
    reopen: int = 6
    longest: float = 60.0


@dataclass(frozen=True, slots=True)
class ProbeRound:
    """One round. seen: the GPUs the driver lists. events: whether it tells of any."""

    findings: Mapping[GpuUUID, ProbeResult]
    seen: tuple[GpuUUID, ...]
    events: bool


HealthMessage = tuple[HealthEvent, ...] | ProbeRound | str
"""What the driver reported, one round, or why NVML could not be asked."""


@dataclass(frozen=True, slots=True)
class PendingQuery:
    """What is being asked, of a GPU or of the library, since when (monotonic seconds)."""

    gpu: GpuUUID | None
    since: float


class HealthProber:
    """Runs from start() to stop(). tell: called in the thread. known: GPUs to probe besides those
    that the driver lists."""

    def __init__(
        self,
        source: HealthSource,
        timing: ProbeTiming,
        tell: Callable[[HealthMessage], None],
        known: Callable[[], Iterable[GpuUUID]],
    ) -> None:
        self._source = source
        self._timing = timing
        self._tell = tell
        self._known = known
        self._stopping = threading.Event()
        self._last_round = self._next_round = 0.0
        self._missed = 0
        self._question: PendingQuery | None = None

    def start(self) -> None:
        threading.Thread(target=self._run, name="gpu-health", daemon=True).start()

    def stop(self) -> None:
        """Have the thread end after the question that is under way, if that ends."""
        self._stopping.set()

    @property
    def unanswered(self) -> PendingQuery | None:
        """Return the question that should have been answered by now."""
        asked = self._question
        if asked is None or time.monotonic() - asked.since <= self._timing.silent:
            return None
        return asked

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._turn()
            except Exception as error:  # else nobody watches, and nobody knows
                known = isinstance(error, NvmlError)
                log.debug("the NVML health check failed", exc_info=not known)
                self._tell(str(error) if known else repr(error))
                self._next_round = 0.0
                self._stopping.wait(self._timing.retry)
        self._source.close()

    def _turn(self) -> None:
        if time.monotonic() >= self._next_round:
            begun = time.monotonic()
            seen = self._ask(LIBRARY, self._source.gpus)
            findings = {
                gpu: self._ask(gpu, partial(self._source.probe, gpu))
                for gpu in dict.fromkeys((*seen, *self._known()))
            }
            ill = any(one.problem for one in findings.values())
            self._missed = self._missed + 1 if ill else 0
            if self._missed and self._missed % self._timing.reopen == 0:
                self._ask(LIBRARY, self._source.reopen)
            self._tell(ProbeRound(findings, seen, self._source.tells_events()))
            self._last_round = time.monotonic()
            cost = self._last_round - begun
            self._next_round = self._last_round + poll_interval(
                self._timing.probe, cost, self._timing.longest
            )
        events = self._ask(LIBRARY, partial(self._source.wait, self._timing.wait))
        if events:
            self._tell(events)
        if any(event.gpu is None for event in events):
            self._stopping.wait(max(0.0, self._last_round + LEAST_PAUSE - time.monotonic()))
            self._next_round = 0.0

    def _ask(self, gpu: GpuUUID | None, question: Callable[[], T]) -> T:
        self._question = PendingQuery(gpu, time.monotonic())
        try:
            return question()
        finally:
            self._question = None
