"""Calls that may not return: each in a thread of its own, awaited for some seconds.

A driver that hangs, a file system that is gone: the thread is left behind, and the process can end.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Thread
from typing import Final, Generic, TypeVar

QUESTION_SECONDS: Final = 10.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unseen:
    """What could not be looked at, and why."""

    cause: str


class DoctorQuestion(Generic[T]):
    """A call in a thread, started when this is made."""

    def __init__(self, ask: Callable[[], T], seconds: float = QUESTION_SECONDS) -> None:
        self._ask = ask
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._answer: T | Unseen = Unseen(f"no answer within {seconds:g} s")
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def answer(self) -> T | Unseen:
        """Wait for the answer and return it, or why there is none."""
        self._thread.join(max(0.0, self._until - time.monotonic()))
        return self._answer

    def _run(self) -> None:
        try:
            self._answer = self._ask()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what the reader needs
            cause = str(error) or type(error).__name__
            if isinstance(error, OSError) and error.strerror:
                cause = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
            self._answer = Unseen(cause)
