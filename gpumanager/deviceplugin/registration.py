"""Keeps one resource served and registered, whatever the kubelet does.

It registers when the kubelet's socket exists, and again when that socket or our own is replaced or
removed, when the kubelet has stopped watching our devices (before 1.37 it may drop a plugin that
registers while its former stream is still ending), and on request. Each attempt has a socket of a
new name. Failed attempts are repeated with backoff; a kubelet that starts resets it.

A starting kubelet deletes every socket in its directory and creates its own again. The new one may
have the inode of the old one, so its times are compared too.
"""

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Never, TypeVar

import grpc
import grpc.aio

from gpumanager.deviceplugin import wire
from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.deviceplugin.server import OPTIONS, ResourceServer
from gpumanager.errors import GpuManagerError
from gpumanager.grpc_wire import PluginStanding
from gpumanager.kube.backoff import Backoff

REGISTER_SECONDS: Final = 15.0


class RegistrationFailed(GpuManagerError):
    """The kubelet did not take a resource: which, where, and what it said."""

    def __init__(self, resource: str, socket: Path, cause: str) -> None:
        super().__init__(f"{socket}: cannot register {resource} with the kubelet: {cause}")


async def register(
    kubelet: Path, resource: str, socket: Path, deadline: float = REGISTER_SECONDS
) -> None:
    """Register `resource`, served on `socket`; both sockets are in one directory.

    Raises RegistrationFailed within `deadline` seconds.
    """
    request = pb.RegisterRequest(
        version=wire.VERSION, endpoint=socket.name, resource_name=resource, options=OPTIONS
    )
    try:
        async with wire.dial(kubelet) as channel:
            await wire.register(channel, request, deadline)
    except grpc.aio.AioRpcError as error:
        cause = f"{error.details()} ({error.code().name})"
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            cause = f"no answer within {deadline:g} s"
        elif error.code() is grpc.StatusCode.UNAVAILABLE:
            cause = "no kubelet listens there; is it running, and is this its device plugin path?"
        raise RegistrationFailed(resource, kubelet, cause) from error


logger = logging.getLogger(__name__)

_T = TypeVar("_T")

LOOK_SECONDS: Final = 0.5
"""Between two looks at the sockets."""
UNWATCHED: Final = 2.0
"""Seconds for which the kubelet may be without a stream of ours before we register again."""
NEVER_WATCHED: Final = 15.0
"""The same after registering: old kubelets dial only then, and may take ten seconds."""
FIRST: Final = Backoff(0.25, 15.0)

Identity = tuple[int, int, int]
"""Inode, modification and change time of a file."""


def identity(path: Path) -> Identity | None:
    """Which file lies at `path` now; None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


Sockets = tuple[Identity | None, Identity | None]
"""The kubelet's socket and ours, as they are at one moment."""


class Registration:
    """One resource, kept registered by the task that runs `keep`. notice: is told which kubelet
    there is, before each attempt."""

    def __init__(
        self,
        server: ResourceServer,
        kubelet: Path,
        notice: Callable[[Identity | None], Awaitable[None]],
        *,
        deadline: float,
    ) -> None:
        self._server = server
        self._kubelet = kubelet
        self._notice = notice
        self._deadline = deadline
        self._asked = False
        self.failure: Exception | None = None
        """Why the last attempt failed, if it did."""
        self._tried: Path | None = None
        """The last socket that the kubelet was told of."""
        self.served = asyncio.Event()
        self.registered = asyncio.Event()
        self.on_registered: Callable[[], None] = lambda: None

    @property
    def standing(self) -> PluginStanding:
        return PluginStanding(
            self._server.resource,
            served=self._server.serving,
            registered=self.registered.is_set(),
            failure=None if self.failure is None else str(self.failure),
        )

    def anew(self) -> None:
        """Register again, even if the sockets are unchanged."""
        self._asked = True

    async def keep(self) -> Never:
        """Until cancelled."""
        if self._kubelet.parent.is_dir():
            await self._attempt(self._serve())
        while True:
            sockets = await self._register_patiently()
            self.registered.set()
            self.on_registered()
            why = await self._until_lost(sockets)
            self.registered.clear()
            logger.info("%s; registering %s again", why, self._server.resource)
            await self.withdraw()

    async def withdraw(self) -> None:
        """Serve no more. Safe to repeat."""
        self.registered.clear()
        self.served.clear()
        await self._server.stop()

    async def _register_patiently(self) -> Sockets:
        """Return the sockets with which we are registered."""
        loop, backoff, tried = asyncio.get_running_loop(), FIRST, None
        while True:
            kubelet = identity(self._kubelet)
            if kubelet is None:
                await asyncio.sleep(LOOK_SECONDS)
                continue
            if sockets := await self._attempt(self._register()):
                return sockets
            backoff, tried = (backoff if kubelet == tried else FIRST).failed(), kubelet
            pause = backoff.pause(random.random())  # noqa: S311 - so that not all try at once
            until = loop.time() + pause
            while (left := until - loop.time()) > 0:
                await asyncio.sleep(min(LOOK_SECONDS, left))
                if identity(self._kubelet) != kubelet or self._asked:
                    break

    async def _attempt(self, work: Awaitable[_T]) -> _T | None:
        """Its result; None if it failed, which is logged once as a warning."""
        before, self.failure = self.failure, None
        self._asked = False
        try:
            return await work
        except (GpuManagerError, OSError) as error:
            level = logging.DEBUG if str(error) == str(before) else logging.WARNING
            logger.log(level, "%s; trying again", error)
            self.failure = error
            return None

    async def _register(self) -> Sockets:
        if identity(self._server.socket) is None or self._server.socket == self._tried:
            # Tried: the kubelet may have connected after our deadline. Example: 1.37 under load;
            # asked for the same path again, it refuses that, and never takes it any more.
            await self._serve()
        sockets, self._tried = self._look(), self._server.socket
        await self._notice(sockets[0])
        await register(self._kubelet, self._server.resource, self._server.socket, self._deadline)
        return sockets

    async def _serve(self) -> None:
        await self._server.stop()
        await self._server.start()
        self.served.set()

    async def _until_lost(self, sockets: Sockets) -> str:
        """Why we have to register again."""
        self._server.expect_watcher()
        while not self._asked:
            now, unwatched = self._look(), self._server.unwatched
            longest = UNWATCHED if self._server.was_watched else NEVER_WATCHED
            if now[0] is not None:  # without a kubelet: the next one deletes what we make
                if now[0] != sockets[0]:
                    return "the kubelet's socket is another"
                if now != sockets:
                    return "its socket was removed"
                if unwatched is not None and unwatched >= longest:
                    return "the kubelet does not watch"
            await asyncio.sleep(LOOK_SECONDS)
        return "asked to"

    def _look(self) -> Sockets:
        return identity(self._kubelet), identity(self._server.socket)
