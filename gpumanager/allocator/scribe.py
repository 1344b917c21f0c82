"""The thread in which the journal's file is read, written and forced to the disk.

One, so that whoever gives up waiting for a change, the next comes after it. The kubelet stands
still meanwhile, so the way there and back is short: a queue, and a word to the loop.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

Work = Callable[[], None]


class Scribe:
    """Begins with the first work, and ends with the process or with whoever has it."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def __del__(self) -> None:
        self._queue.put(None)

    def run(self, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        """Begun at once, without anybody awaiting it; raises what `work` raises."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=_serve, args=(self._queue,), name="journal", daemon=True
            )
            self._thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def done() -> None:
            try:
                result = work(*arguments)
            except BaseException as error:  # noqa: BLE001 - whoever awaits it gets it
                _tell(loop, future, future.set_exception, error)
            else:
                _tell(loop, future, future.set_result, result)

        self._queue.put(done)
        return future


def _serve(queue: "SimpleQueue[Work | None]") -> None:
    while (work := queue.get()) is not None:
        work()
        del work


def _tell(
    loop: asyncio.AbstractEventLoop,
    future: "asyncio.Future[T]",
    how: Callable[[Any], None],
    what: object,
) -> None:
    """Nobody waits any more where the loop is closed."""

    def settle() -> None:
        if not future.done():
            how(what)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        return
