"""The socket of one allocation: from a connection to a HELLO, whatever the other side does.

Anything in the container can connect, so everything is bounded: the time one caller has, the bytes
it may send, the callers at once and in a second, the lines in the log. Callers beyond the bound
wait in the kernel's queue; those that come too often are told so, a few at a time.

Each connection has a task. A process may keep its connection to ask again: its task then waits
for as long as the process lives, and is no caller meanwhile.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from errno import EAGAIN
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
"""Callers refused for calling too often, before a pause."""
PAUSE_SECONDS: Final = 0.1
BACKLOG: Final = 1024

TOO_OFTEN: Final = HelloRefused(EAGAIN, f"more than {CALLS_PER_SECOND} calls a second")

Answer = Callable[[socket.socket, Greeting], Awaitable[Callable[[], None] | None]]
"""Answers one greeting. Returns None if the connection is to be closed; else what to call once its
process asks on, or has closed it."""


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
        self._loop = asyncio.get_running_loop()
        self._deadline_seconds = deadline_seconds
        self._descriptors = descriptors or Descriptors()
        self._said = said or RepeatedLog(log, str(directory))
        self._calls = TokenBucket(CALLS_PER_SECOND, CALLS_AT_ONCE)
        self._answer = answer
        self._callers = 0
        self._tasks: set[asyncio.Task[None]] = set()
        listening = bind(directory)
        self._run(self._accept(listening), listening)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _run(self, coroutine: Coroutine[None, None, None], connection: socket.socket) -> None:
        """Run it, and then close the connection."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: connection.close())

    async def _accept(self, listening: socket.socket) -> None:
        refused = 0
        while True:
            await asyncio.sleep(0)  # else a flood would never wait
            if not self._descriptors.may_wait(self._callers):
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            try:
                connection, _address = await self._loop.sock_accept(listening)
            except ConnectionAbortedError:
                continue
            except OSError as error:  # out of descriptors or memory
                self._said.say(logging.WARNING, "accept", f"cannot accept: {error.strerror}")
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if self._may_call(connection):
                self._run(self._serve(connection), connection)
                continue
            connection.close()
            refused += 1
            if refused % BATCH == 0:
                await asyncio.sleep(PAUSE_SECONDS)

    def _may_call(self, connection: socket.socket) -> bool:
        """Refuse one that calls too often, whatever it wants."""
        if self._calls.take(self._loop.time()):
            return True
        self._said.say(logging.INFO, TOO_OFTEN.reason, f"refused: {TOO_OFTEN.reason}")
        with suppress(OSError):
            connection.send(refusal(TOO_OFTEN), socket.MSG_DONTWAIT)
        return False

    def _count(self, callers: int) -> None:
        self._callers += callers
        self._descriptors.callers_now += callers

    async def _serve(self, connection: socket.socket) -> None:
        """Answer it, again and again while its process keeps it."""
        received = b""
        with suppress(OSError):
            while True:
                self._count(1)
                try:
                    greeting = await self._greeting(connection, received)
                    release = await self._answer(connection, greeting) if greeting else None
                finally:
                    self._count(-1)
                if release is None:
                    return
                try:
                    received = await self._loop.sock_recv(connection, HELLO_SIZE)
                finally:
                    release()
                if not received or not self._may_call(connection):
                    return
                if not self._descriptors.may_wait(self._callers) and len(received) < HELLO_SIZE:
                    return

    async def _greeting(self, connection: socket.socket, received: bytes) -> Greeting | None:
        """Return what it begins with; None for one that has gone, or is late."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._deadline_seconds):
                while (greeting := parse_hello(received)) is None:
                    part = await self._loop.sock_recv(connection, HELLO_SIZE - len(received))
                    if not part:
                        return None
                    received += part
                return greeting
        return None
