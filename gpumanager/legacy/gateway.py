"""The way from a container's socket to the gRPC server behind it, for callers that speak HTTP/2.

gRPC takes no connection that another has accepted, so that bytes are carried to a socket of its
own. The caller is not among them: each connection to that socket has a peer name that the kernel
chooses and gRPC reports, and the caller is registered under that name here. Nothing
of this exists until the first such caller comes, and no caller stays for long.
"""

import asyncio
import logging
import socket
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpumanager.legacy.register import Register, RegisterServer
from gpumanager.limits.socket.rate_limits import RepeatedLog

log = logging.getLogger(__name__)

SOCKET: Final = ".register.sock"
CALL_SECONDS: Final = 10.0
"""How long one caller may stay. A registration takes milliseconds."""

CHUNK: Final = 1 << 14
"""Bytes on their way in one direction: no more are taken before these are delivered."""


class Gateway:
    """One for all allocations of a manager. directory: for its socket, closed to containers."""

    def __init__(self, directory: Path, call_seconds: float) -> None:
        self._path = directory / SOCKET
        self._call_seconds = call_seconds
        self._starting = asyncio.Lock()
        self._server: RegisterServer | None = None
        self._callers: dict[str, Register] = {}
        self._said = RepeatedLog(log, "RegisterVDevice")

    async def carry(self, connection: socket.socket, begun: bytes, register: Register) -> None:
        """All that this caller has to say, and the answers. begun: what was read of it already."""
        self._said.summarize()
        with connection.dup() as caller:
            caller.setblocking(False)
            try:
                async with asyncio.timeout(self._call_seconds):
                    await self._start()
                    await self._carry(caller, begun, register)
            except TimeoutError:
                words = f"a caller stayed for {self._call_seconds:g} s"
                self._said.say(logging.INFO, "stayed", words)
            except OSError as error:
                self._said.say(logging.WARNING, error.errno, error.strerror or str(error))

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    async def _start(self) -> None:
        async with self._starting:
            if self._server is None:
                server = RegisterServer(self._path, self._registrar)
                await server.start()
                self._server = server

    async def _carry(self, caller: socket.socket, begun: bytes, register: Register) -> None:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as inner:
            inner.bind("")  # an abstract name that nobody else has
            name = inner.getsockname().lstrip(b"\0").decode()
            self._callers[name] = register
            try:
                await loop.sock_connect(inner, str(self._path))
                await loop.sock_sendall(inner, begun)
                await _until_one_ends(_copy(caller, inner), _copy(inner, caller))
            finally:
                del self._callers[name]

    def _registrar(self, peer: str) -> Register | None:
        kind, _, name = peer.partition(":")
        return self._callers.get(name) if kind == "unix-abstract" else None


async def _copy(source: socket.socket, target: socket.socket) -> None:
    """Until one of them ends, in whatever way: that is no error of ours."""
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while chunk := await loop.sock_recv(source, CHUNK):
            await loop.sock_sendall(target, chunk)


async def _until_one_ends(*ways: Coroutine[None, None, None]) -> None:
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
