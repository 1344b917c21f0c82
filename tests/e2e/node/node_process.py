"""A program of the node: started with a log of its own, waited for, and stopped."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

SECONDS: Final = 180.0
"""How long anything is waited for: on two slow cores everything takes its time, and comes."""
STOP_SECONDS: Final = 60.0
LAST_LINES: Final = 15
PAUSE: Final = 0.05

T = TypeVar("T")


class NotInTime(AssertionError):
    """What was waited for did not come."""


def wait_for(ask: Callable[[], T | None], what: str, seconds: float = SECONDS) -> T:
    """The first answer that is not empty; raises NotInTime."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if answer := ask():
            return answer
        time.sleep(PAUSE)
    raise NotInTime(f"not within {seconds:g} s: {what}")


class NodeProcess:
    """One program; started again it goes on with the same log."""

    def __init__(self, name: str, log: Path, environment: dict[str, str] | None = None) -> None:
        self.name = name
        self.log = log
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *command: object) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | (self._environment or {}),
                start_new_session=True,
            )

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ended when this returns; safe to repeat."""
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """It does nothing meanwhile, and knows nothing of it."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def wait_for(self, ask: Callable[[], T | None], what: str, seconds: float = SECONDS) -> T:
        """As `wait_for`, with the end of the log where it fails: at once if the program ends."""

        def alive_and_asked() -> T | None:
            if self._process is None or self._process.poll() is not None:
                raise NotInTime(f"{self.name} has ended: {self.last_words()}")
            return ask()

        try:
            return wait_for(alive_and_asked, what, seconds)
        except NotInTime as error:
            raise NotInTime(f"{error}; {self.name} says: {self.last_words()}") from error

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-LAST_LINES:])
