"""An event loop for histories: threads take no time, and a sleep is over when it begins.

What would be done in a thread is done at once, and time moves only while everybody sleeps, so that
a history goes the same way on every machine. Whoever has a thread of his own is waited for where
nobody sleeps, without a look now and then: a loop that looks keeps that thread from its work.
"""

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any


class _Patient(selectors.DefaultSelector):
    """Waits for no time to pass: `slept` says how long it should have."""

    slept = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(None if timeout is None else 0)
        if not found and timeout:
            self.slept += timeout
        return found


class HistoryLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._patient = _Patient()
        super().__init__(self._patient)

    def time(self) -> float:
        return self._patient.slept

    def run_in_executor(  # type: ignore[override]  # of arguments that only the checker knows
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        del executor
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except BaseException as error:  # noqa: BLE001  # whoever waits for it gets it
            done.set_exception(error)
        return done
