"""Writes to the API server in the background, one task after another.

There is no queue: each round asks for the tasks again, which are the difference between what should
be and what is. So none is lost or outdated, and an outage leaves no backlog. A task that is refused
is tried again after a growing pause of its own; in an outage all tasks wait.
"""

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from gpumanager.kube.backoff import Backoff
from gpumanager.kube.errors import NOT_UNDERSTOOD, ApiRefused, ApiUnavailable

log = logging.getLogger(__name__)

CONFLICT_ATTEMPTS: Final = 4
CONFLICT_SECONDS: Final = 0.1
BETWEEN_WRITES_SECONDS: Final = 1.0
"""A task that was written is not repeated for so long: the watch may not have brought it yet."""
LEAST_PAUSE: Final = 0.2


@dataclass(frozen=True, slots=True)
class Task:
    """One write. key: the same in each round. what: for the log, beginning with its kind."""

    key: Hashable
    what: str
    perform: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class NextAttempt:
    """When a task that was attempted is due again. backoff: how often it has failed in a row."""

    due: float
    backoff: Backoff


class Writer:
    """Performs tasks. backoff: for a refused task. outage: while the API server does not answer."""

    def __init__(
        self,
        *,
        backoff: Backoff | None = None,
        outage: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rounds = 0
        self._no_failures = backoff or Backoff(1.0, 300.0)
        self._outage = self._no_outage = outage or Backoff(1.0, 60.0)
        self._clock = clock
        self._attempted: dict[Hashable, NextAttempt] = {}
        self._paused_until = 0.0
        self._forbidden_kinds: set[str] = set()

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
                # Until a refused task is due again or, in an outage, the API server is to be tried.
                retries = (n.due for n in self._attempted.values() if n.backoff.failures)
                due = min(retries, default=math.inf) if self.reachable else self._paused_until
                pause = max(LEAST_PAUSE, due - self._clock())
                async with asyncio.timeout(min(period, pause)):
                    await wake.wait()
            wake.clear()

    async def round(self, tasks: tuple[Task, ...]) -> None:
        """Perform all tasks that are due."""
        keys = {task.key for task in tasks}
        self._attempted = {key: n for key, n in self._attempted.items() if key in keys}
        self.rounds += 1
        for task in tasks:
            if self._clock() < self._paused_until:
                return
            known = self._attempted.get(task.key)
            if known is None or known.due <= self._clock():
                await self._attempt(task, known.backoff if known else self._no_failures)

    async def _attempt(self, task: Task, backoff: Backoff) -> None:
        try:
            await task.perform()
        except ApiUnavailable as error:
            if self.reachable:
                log.warning("%s; all writes are paused", error)
            self._outage = self._outage.failed()
            self._paused_until = self._clock() + self._outage.pause(random.random())  # noqa: S311
            return
        except ApiRefused as error:
            # A missing permission is a warning once for each kind of task.
            kind = task.what.partition(" ")[0]
            known = error.status == HTTPStatus.FORBIDDEN and kind in self._forbidden_kinds
            if error.status == HTTPStatus.FORBIDDEN:
                self._forbidden_kinds.add(kind)
            log.log(logging.DEBUG if known else logging.WARNING, "%s: %s", task.what, error)
            backoff, pause = self._refused(backoff, error.retry_after or 0.0)
        except NOT_UNDERSTOOD as error:
            log.warning("%s: unexpected answer: %r", task.what, error)
            backoff, pause = self._refused(backoff, 0.0)
        else:
            backoff, pause = self._no_failures, BETWEEN_WRITES_SECONDS
        if not self.reachable:
            log.info("the API server answers again; resuming writes")
        self._outage, self._paused_until = self._no_outage, 0.0
        self._attempted[task.key] = NextAttempt(self._clock() + pause, backoff)

    def _refused(self, backoff: Backoff, least: float) -> tuple[Backoff, float]:
        """Return the next backoff, and the pause in seconds, at least `least`."""
        later = backoff.failed()
        return later, max(least, later.pause(random.random()))  # noqa: S311


async def retry_on_conflict(write: Callable[[], Awaitable[Any]]) -> Any:
    """Call `write`, and up to three times again on a conflict with another writer."""
    for attempt in range(1, CONFLICT_ATTEMPTS):
        try:
            return await write()
        except ApiRefused as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            await asyncio.sleep(CONFLICT_SECONDS * attempt)
    return await write()
