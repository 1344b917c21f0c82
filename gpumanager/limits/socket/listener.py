"""The socket of one allocation: from a connection to a HELLO, whatever the other side does.

Anything in the container can connect, so everything is bounded: the time one caller has, the bytes
it may send, the callers at once and in a second, the work done before the loop sees other sockets,
the lines in the log. Callers beyond the bound wait in the kernel's queue; those that come too often
are told so, a few at a time. A handshake usually needs no second look: the HELLO is there when the
connection is, and is answered on the spot.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpumanager.errors import GpuManagerError
from gpumanager.limits.socket.bounds import Descriptors, RepeatedLog, TokenBucket
from gpumanager.limits.socket.protocol import (
    HELLO_SIZE,
    Greeting,
    HelloRefused,
    parse_hello,
    refusal,
)
from gpumanager.names import SOCKET_NAME

log = logging.getLogger(__name__)

PATH_LIMIT: Final = 107
"""Longest path of a socket, in bytes, without its final 0 (unix(7))."""

DEADLINE_SECONDS: Final = 2.0
CALLS_PER_SECOND: Final = 500
CALLS_AT_ONCE: Final = 4096
"""As many processes as have slots may begin in a moment, and ask a few times each."""
BATCH: Final = 16
PAUSE_SECONDS: Final = 0.1
BACKLOG: Final = 1024

TOO_OFTEN: Final = HelloRefused(errno.EAGAIN, f"more than {CALLS_PER_SECOND} calls a second")

Answer = Callable[[socket.socket, Greeting], Coroutine[None, None, None] | None]
"""Answers, at once or in what it returns; the listener closes the connection after it."""


class SocketPathTooLong(GpuManagerError):
    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path}: {len(os.fsencode(path))} bytes, a socket's path may have {PATH_LIMIT}; "
            "choose a shorter --virtual-manager-path"
        )


def bind(directory: Path) -> socket.socket:
    """Listen as `vcuda.sock` in `directory`, in place of what a dead manager left there.

    It takes its name when it listens already, so that nobody meets a closed door between.
    """
    path, temporary = directory / SOCKET_NAME, directory / ".sock"
    if len(os.fsencode(path)) > PATH_LIMIT:
        raise SocketPathTooLong(path)
    temporary.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listening.bind(str(temporary))
        temporary.chmod(0o777)  # containers run as any user; the mount decides who reaches it
        listening.listen(BACKLOG)
        temporary.replace(path)
    except OSError:
        listening.close()
        raise
    return listening


class SocketListener:
    """Accepts callers in the running loop until close()."""

    def __init__(
        self,
        directory: Path,
        answer: Answer,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
        descriptors: Descriptors | None = None,
        said: RepeatedLog | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.deadline_seconds = deadline_seconds
        self.descriptors = descriptors or Descriptors()
        self._said = said or RepeatedLog(log, str(directory))
        self._calls = TokenBucket(CALLS_PER_SECOND, CALLS_AT_ONCE)
        self._directory = directory
        self._answer = answer
        self._callers: set[Caller] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._listening = False
        self._socket = bind(directory)
        self._listen()

    def close(self) -> None:
        self._stop_listening()
        self._socket.close()
        for caller in list(self._callers):
            caller.close()

    def _listen(self) -> None:
        self._pause = None
        self._listening = True
        self.loop.add_reader(self._socket.fileno(), self._accept)

    def _stop_listening(self) -> None:
        self._listening = False
        self.loop.remove_reader(self._socket.fileno())
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _accept(self) -> None:
        crowded = False
        for _ in range(BATCH):
            if len(self._callers) >= self.descriptors.callers:
                self._stop_listening()  # until one of them leaves
                return
            if not self.descriptors.may_wait(len(self._callers)):
                self._rest()
                return
            try:
                connection, _address = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                break
            except OSError as error:  # out of descriptors or memory
                self._said.say(logging.WARNING, "accept", f"cannot accept: {error.strerror}")
                self._rest()
                return
            received = _receive(connection, HELLO_SIZE)
            if self._calls.take(self.loop.time()):
                self._serve(connection, received)
            else:
                crowded = True
                self._refuse(connection)
        if crowded:
            self._rest()

    def _refuse(self, connection: socket.socket) -> None:
        """Refuse one that calls too often, whatever it wants."""
        self._said.say(logging.INFO, TOO_OFTEN.reason, f"refused: {TOO_OFTEN.reason}")
        with connection, suppress(OSError):
            connection.send(refusal(TOO_OFTEN), socket.MSG_DONTWAIT)

    def _rest(self) -> None:
        self._stop_listening()
        self._pause = self.loop.call_later(PAUSE_SECONDS, self._listen)

    def serve_again(self, connection: socket.socket) -> None:
        """Serve a connection that its process has kept and now asks on, or has closed.

        There is no wait for the rest of a HELLO where callers have to wait to be accepted.
        """
        received = _receive(connection, HELLO_SIZE)
        if not received:
            connection.close()
        elif not self._calls.take(self.loop.time()):
            self._refuse(connection)
        elif len(received) == HELLO_SIZE or self.descriptors.may_wait(len(self._callers)):
            self._serve(connection, received)
        else:
            connection.close()

    def _serve(self, connection: socket.socket, received: bytes | None) -> None:
        """Answer on the spot the connections that have sent HELLO; the others become callers."""
        greeting = parse_hello(received) if received else None
        if greeting is not None:
            self.answer(connection, greeting)
        elif received is None or received:
            connection.setblocking(False)
            Caller(connection, self, received or b"").wait()
        else:
            connection.close()

    def answer(self, connection: socket.socket, greeting: Greeting) -> None:
        """Answer and close the connection, now or later."""
        rest = None
        try:
            rest = self._answer(connection, greeting)
        finally:
            if rest is None:
                connection.close()
        if rest is not None:
            connection.setblocking(False)
            Caller(connection, self).wait_for(rest)

    def enter(self, caller: "Caller") -> None:
        self._callers.add(caller)
        self.descriptors.callers_now += 1

    def forget(self, caller: "Caller") -> None:
        if caller in self._callers:
            self._callers.discard(caller)
            self.descriptors.callers_now -= 1
        if not self._listening and self._pause is None and self._socket.fileno() >= 0:
            self._listen()


class Caller:
    """A connection that takes its time: for its HELLO, or for the answer."""

    def __init__(
        self, connection: socket.socket, listener: SocketListener, received: bytes = b""
    ) -> None:
        self._connection = connection
        self._listener = listener
        self._received = received
        self._deadline: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[None] | None = None
        listener.enter(self)

    def wait(self) -> None:
        """Wait for the rest of its HELLO."""
        loop = self._listener.loop
        self._deadline = loop.call_later(self._listener.deadline_seconds, self.close)
        loop.add_reader(self._connection.fileno(), self._read)

    def wait_for(self, answer: Coroutine[None, None, None]) -> None:
        self._answering = self._listener.loop.create_task(answer)
        self._answering.add_done_callback(lambda _: self.close())

    def close(self) -> None:
        self._stop_waiting()
        if self._answering is not None:
            self._answering.cancel()
        self._connection.close()
        self._listener.forget(self)

    def _read(self) -> None:
        received = _receive(self._connection, HELLO_SIZE - len(self._received))
        if received is None:
            return
        if not received:
            self.close()
            return
        self._received += received
        greeting = parse_hello(self._received)
        if greeting is not None:
            self._stop_waiting()
            self._listener.forget(self)
            self._listener.answer(self._connection, greeting)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
            self._listener.loop.remove_reader(self._connection.fileno())


def _receive(connection: socket.socket, size: int) -> bytes | None:
    """Return what has come: None where that is nothing yet, b"" where nothing will."""
    try:
        return connection.recv(size, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    except OSError:
        return b""
