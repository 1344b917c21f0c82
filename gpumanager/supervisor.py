"""Background tasks of the agent, the extender and the webhook: none of them stops for good.

A task that fails is restarted after a pause, of 1 s at first and twice as long each time, up to
1 min. While it is down, or has run for less time since than the pause was, it is in `trouble`,
which `/healthz` tells. An error about one object (an allocation, a pod, a node) is no reason to
stop: the task hands it to `SkippedErrors` and goes on with the others (decision 0096).
"""

import asyncio
import contextlib
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

log = logging.getLogger(__name__)

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
STEADY_SECONDS: Final = 60.0
"""A task that ran for so long begins with the first pause again."""
REMEMBERED_ERRORS: Final = 4096
LONGEST_WORDS: Final = 200
"""Characters of an error's text: tenants may have written it."""

Start = Callable[[], Coroutine[Any, Any, object]]


class SkippedErrors:
    """Errors about one object each. counts: how many, by task."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._said: dict[tuple[str, ...], bool] = {}

    def skip(self, task: str, source: str, error: Exception) -> None:
        """Count it; log it once for each task, source and kind of error, the newest ones.

        source: the object. The traceback is logged once for each task and kind.
        """
        self.counts[task] += 1
        kind = type(error).__name__
        known = self._is_known((task, source, kind))
        log.log(
            logging.DEBUG if known else logging.ERROR,
            "%s: %s is skipped: %s",
            *(task, source[:LONGEST_WORDS], words(error)),
            exc_info=None if known or self._is_known((task, kind)) else error,
        )

    @contextlib.contextmanager
    def skipping(
        self, task: str, source: str, *, unless: tuple[type[Exception], ...] = ()
    ) -> Iterator[None]:
        """Skip errors of a body about this object alone. unless: errors that are about all."""
        try:
            yield
        except unless:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is about one object
            self.skip(task, source, error)

    def _is_known(self, key: tuple[str, ...]) -> bool:
        known = self._said.pop(key, False)
        self._said[key] = True
        if len(self._said) > REMEMBERED_ERRORS:
            del self._said[next(iter(self._said))]
        return known


@dataclass(slots=True)
class Supervisor:
    """Runs tasks until `stop`. restarts: by name, of all that were ever started.

    clock: monotonic seconds. skipped: what the tasks may share.
    """

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    restarts: Counter[str] = field(default_factory=Counter)
    skipped: SkippedErrors = field(default_factory=SkippedErrors)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _failing: dict[str, tuple[str, float]] = field(default_factory=dict)
    """The error of the last run of a task, and until when it has to run again."""
    _kinds: set[tuple[str, str]] = field(default_factory=set)

    def keep(self, name: str, start: Start) -> None:
        """Run it, and again when it fails, until it returns."""
        self.restarts[name] += 0
        task = asyncio.create_task(self._keep(name, start), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def trouble(self) -> str:
        """Name the tasks that are down or have just been; empty where there are none."""
        now = self.clock()
        self._failing = {name: one for name, one in self._failing.items() if now < one[1]}
        return "; ".join(f"background task {name}: {e}" for name, (e, _) in self._failing.items())

    async def stop(self) -> None:
        """Stop all, and return when they have ended."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, name: str, start: Start) -> None:
        pause = FIRST_PAUSE
        while True:
            began = self.clock()
            # In a task of its own: a TaskGroup that fails leaves its task marked as cancelled.
            work = asyncio.create_task(start())
            try:
                await asyncio.wait((work,))
            except asyncio.CancelledError:
                work.cancel()
                await asyncio.wait((work,))
                if not work.cancelled():
                    work.exception()  # it was told to end, and how it did matters to nobody
                raise
            failure = asyncio.CancelledError() if work.cancelled() else work.exception()
            if failure is None:
                self._failing.pop(name, None)
                return
            if self.clock() - began >= STEADY_SECONDS:
                pause = FIRST_PAUSE
            kind = (name, words(failure).partition(":")[0])
            log.error(
                "background task %s has stopped and is restarted in %g s: %s",
                *(name, pause, words(failure)),
                exc_info=None if kind in self._kinds else failure,  # once for each kind
            )
            self._kinds.add(kind)
            self._failing[name] = words(failure), math.inf
            await self.sleep(pause)
            self.restarts[name] += 1
            self._failing[name] = words(failure), self.clock() + pause
            pause = min(2 * pause, LONGEST_PAUSE)


def words(error: BaseException) -> str:
    """Return kind and text, in one line; of several at once the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())[:LONGEST_WORDS]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
