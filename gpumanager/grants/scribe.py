"""The thread in which the journal's file is read, written and forced to the disk.

One, so that whoever gives up waiting for a change, the next comes after it. The kubelet stands
still meanwhile, so the way there and back is short: a queue, and on the way back a lock for which
the loop itself waits, for a moment at most. Of what takes longer the loop is told when it is done,
and everybody else goes on meanwhile.
"""

import asyncio
import threading
from collections.abc import Callable, Generator
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, Generic, Never, TypeVar

T = TypeVar("T")

MOMENT: Final = 0.0003
"""Seconds for which everything stands still. A line that goes to memory takes a tenth of them."""


class Errand(Generic[T]):
    """One work, begun at once, whether anybody awaits it or not; raises what the work raises."""

    def __init__(self, work: Callable[..., T], arguments: tuple[Any, ...]) -> None:
        self._loop = asyncio.get_running_loop()
        self._work = work
        self._arguments = arguments
        self._done = threading.Lock()
        self._done.acquire()
        self._turn = threading.Lock()
        self._outcome: Callable[[], T] = _not_yet
        self._over = False
        self._waiting: asyncio.Future[None] | None = None

    def run(self) -> None:
        """In the thread, once."""
        outcome = _outcome(self._work, self._arguments)
        with self._turn:
            self._outcome, self._over, waiting = outcome, True, self._waiting
        self._done.release()
        if waiting is not None:
            self._tell(waiting)

    def __await__(self) -> Generator[Any, None, T]:
        if not self._over and not self._done.acquire(timeout=MOMENT):
            yield from self._be_told()
        return self._outcome()

    def _be_told(self) -> "asyncio.Future[None]":
        """When it is done."""
        with self._turn:
            self._waiting = waiting = self._loop.create_future()
            if self._over:
                waiting.set_result(None)
            return waiting

    def _tell(self, waiting: "asyncio.Future[None]") -> None:
        """Nobody waits any more where the loop is closed."""

        def settle() -> None:
            if not waiting.done():
                waiting.set_result(None)

        try:
            self._loop.call_soon_threadsafe(settle)
        except RuntimeError:
            return


class Scribe:
    """Begins with the first work, and ends with the process or with whoever has it."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Errand[Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def __del__(self) -> None:
        self._queue.put(None)

    def run(self, work: Callable[..., T], *arguments: Any) -> Errand[T]:
        """Begun at once, without anybody awaiting it."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=_serve, args=(self._queue,), name="journal", daemon=True
            )
            self._thread.start()
        errand = Errand(work, arguments)
        self._queue.put(errand)
        return errand


def _outcome(work: Callable[..., T], arguments: tuple[Any, ...]) -> Callable[[], T]:
    """What it returns, or raises."""
    try:
        result = work(*arguments)
    except BaseException as error:  # noqa: BLE001 - whoever awaits it gets it
        return partial(_raise, error)
    return lambda: result


def _raise(error: BaseException) -> Never:
    raise error


def _not_yet() -> Never:
    raise asyncio.InvalidStateError


def _serve(queue: "SimpleQueue[Errand[Any] | None]") -> None:
    while (errand := queue.get()) is not None:
        errand.run()
        del errand
