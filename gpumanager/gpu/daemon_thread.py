"""A thread for questions that may never be answered, as those to NVML.

Python waits for the threads of its own executors before it ends, whatever they do. This one is a
daemon: a caller sets its own time limit, and a call that hangs does not keep the process alive.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Work = tuple[Future[Any], Callable[[], Any]]
Queue = SimpleQueue[Work | None]


class DaemonThreadExecutor(Executor):
    """Does one thing after another; begins its thread with the first. For `run_in_executor`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: Queue | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        if self._work is None:
            self._work = SimpleQueue()
            threading.Thread(target=_run, args=[self._work], name=self._name, daemon=True).start()
        self._work.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """Ends the thread after what it was given; never waits for it.

        Whatever comes later begins another.
        """
        if self._work is not None:
            self._work.put(None)
            self._work = None


def _run(queue: Queue) -> None:
    while (work := queue.get()) is not None:
        future, call = work
        if not future.set_running_or_notify_cancel():
            continue
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  # whoever waits for it gets it
            future.set_exception(error)
