"""NVML kept open between the calls of a caller that asks again and again.

A question that fails closes it, so that the next begins anew: the driver may have been updated.
"""

import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

import pynvml

from gpumanager.gpu.nvml import NvmlError, ask, if_supported
from gpumanager.gpu.nvml_library import LIBRARY, User

T = TypeVar("T")

SHORT_QUESTION: Final = 0.5
"""Seconds."""


class NvmlSession(User):
    """Opens NVML at its first question and keeps it open until close(); one thread at a time."""

    def __init__(self) -> None:
        self._open = False
        self._asked = threading.Lock()
        """Held while a question is under way."""

    def answer(self, question: Callable[[], T], doing: str) -> T:
        """Return the answer to a question; raises NvmlError."""
        with self._asked:
            if self._open and LIBRARY.is_old(self):
                self.close()
            if not self._open:
                ask(partial(LIBRARY.open, self), "opening NVML")
                self._open = True
                self.opened()
            try:
                return ask(question, doing)
            except NvmlError:
                self._open = False
                LIBRARY.dead(self)
                raise

    def close(self) -> None:
        """Close NVML. Safe to repeat."""
        self._open = False
        LIBRARY.close(self)

    def let_go(self) -> bool:
        """Close it for the library's sake, unless it is being asked something for long."""
        if not self._asked.acquire(timeout=SHORT_QUESTION):
            return False
        try:
            self._open = False
            if_supported(pynvml.nvmlShutdown, None)
        finally:
            self._asked.release()
        return True

    def reopen(self) -> None:
        """Have all users open the library anew: it lists the GPUs of when it was opened."""
        with self._asked:
            self._open = False
            LIBRARY.dead(self)

    def opened(self) -> None:
        """Forget what was had from the library before it was opened (anew)."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
