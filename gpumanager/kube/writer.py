"""Writes to the API server, one thing after another, in the background.

What is to be written is asked anew each round: it is the difference between what should be and what
is, so nothing is queued that could be lost or grow old, and an outage leaves no backlog. A
task that fails is repeated alone, after a growing pause; while the API server does not answer, all
wait.
"""

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from gpumanager.kube.backoff import Backoff
from gpumanager.kube.errors import NOT_UNDERSTOOD, ApiRefused, ApiUnavailable

log = logging.getLogger(__name__)

CONFLICT: Final = 409
CONFLICT_ATTEMPTS: Final = 4
CONFLICT_SECONDS: Final = 0.1
BETWEEN_WRITES_SECONDS: Final = 1.0
"""What was just written is not written again before the watch has brought it."""
LEAST_PAUSE: Final = 0.2
FORBIDDEN: Final = 403


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to write. key: the same for the same thing. what: for the log."""

    key: Hashable
    what: str
    perform: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Delayed:
    """Not before `until`."""

    until: float
    backoff: Backoff


@dataclass(frozen=True, slots=True)
class WriteCounts:
    """What became of the tasks so far."""

    written: int = 0
    refused: int = 0
    unavailable: int = 0


class Writer:
    """Performs tasks. backoff: of a refused task. outage: while the API server does not answer."""

    def __init__(
        self,
        *,
        backoff: Backoff | None = None,
        outage: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = WriteCounts()
        self.rounds = 0
        self._backoff = backoff or Backoff(1.0, 300.0)
        self._outage = self._no_outage = outage or Backoff(1.0, 60.0)
        self._clock = clock
        self._waiting: dict[Hashable, Delayed] = {}
        self._silent_until = 0.0
        self._forbidden: set[str] = set()

    @property
    def reachable(self) -> bool:
        """Return False during an outage."""
        return not self._outage.failures

    async def run(
        self, tasks: Callable[[], Iterable[Task]], wake: asyncio.Event, period: float
    ) -> None:
        """Perform a round at each `wake`, and every `period` seconds, until cancelled."""
        while True:
            await self.round(tuple(tasks()))
            await asyncio.sleep(LEAST_PAUSE)
            with contextlib.suppress(TimeoutError):
                # Until a task that waits for its next attempt is due, or the outage may be over.
                until = [one.until for one in self._waiting.values() if one.backoff.failures]
                due = min(until, default=math.inf) if self.reachable else self._silent_until
                pause = max(LEAST_PAUSE, due - self._clock())
                async with asyncio.timeout(min(period, pause)):
                    await wake.wait()
            wake.clear()

    async def round(self, tasks: tuple[Task, ...]) -> None:
        """Perform all tasks that are due."""
        keys = {task.key for task in tasks}
        self._waiting = {key: one for key, one in self._waiting.items() if key in keys}
        self.rounds += 1
        for task in tasks:
            if self._clock() < self._silent_until:
                return
            waiting = self._waiting.get(task.key)
            if waiting is None or waiting.until <= self._clock():
                await self._attempt(task, waiting.backoff if waiting else self._backoff)

    async def _attempt(self, task: Task, backoff: Backoff) -> None:
        try:
            await task.perform()
        except ApiUnavailable as error:
            if self.reachable:
                log.warning("%s; all writes are paused", error)
            self._outage = self._outage.failed()
            self._silent_until = self._clock() + self._outage.pause(random.random())  # noqa: S311
            self.counts = replace(self.counts, unavailable=self.counts.unavailable + 1)
            return
        except ApiRefused as error:
            # A missing permission is logged once for each kind of task.
            kind = task.what.partition(" ")[0]
            known = error.status == FORBIDDEN and kind in self._forbidden
            if error.status == FORBIDDEN:
                self._forbidden.add(kind)
            log.log(logging.DEBUG if known else logging.WARNING, "%s: %s", task.what, error)
            backoff, pause = self._refused(backoff, error.retry_after or 0.0)
        except NOT_UNDERSTOOD as error:
            log.warning("%s: unexpected answer: %r", task.what, error)
            backoff, pause = self._refused(backoff, 0.0)
        else:
            backoff, pause = self._backoff, BETWEEN_WRITES_SECONDS
            self.counts = replace(self.counts, written=self.counts.written + 1)
        if not self.reachable:
            log.info("the API server answers again; resuming writes")
        self._outage, self._silent_until = self._no_outage, 0.0
        self._waiting[task.key] = Delayed(self._clock() + pause, backoff)

    def _refused(self, backoff: Backoff, least: float) -> tuple[Backoff, float]:
        self.counts = replace(self.counts, refused=self.counts.refused + 1)
        later = backoff.failed()
        return later, max(least, later.pause(random.random()))  # noqa: S311


async def retry_on_conflict(write: Callable[[], Awaitable[Any]]) -> Any:
    """Call `write`, and up to three times again on a conflict with another writer."""
    for attempt in range(1, CONFLICT_ATTEMPTS):
        try:
            return await write()
        except ApiRefused as error:
            if error.status != CONFLICT:
                raise
            await asyncio.sleep(CONFLICT_SECONDS * attempt)
    return await write()
