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
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple, Never, TypeVar

import grpc
import grpc.aio

from gpumanager.deviceplugin import wire
from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.deviceplugin.changes import Changes
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

UNTIL_WOKEN: Final = 3600.0
"""Seconds; as long as nothing changes."""
UNWATCHED: Final = 2.0
"""Seconds for which the kubelet may be without a stream of ours before we register again."""
NEVER_WATCHED: Final = 15.0
"""The same after registering: old kubelets dial only then, and may take ten seconds."""
FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 15.0

Identity = tuple[int, int, int]
"""Inode, modification and change time of a file."""


def identity(path: Path) -> Identity | None:
    """Which file lies at `path` now; None if there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


class Sockets(NamedTuple):
    """The kubelet's socket and ours, as they are at one moment."""

    kubelet: Identity | None
    own: Identity | None

    def stale(self, now: "Sockets") -> bool:
        """True if, since `self`, the kubelet has started anew or our socket was removed.

        False while there is no kubelet: it would delete what we make.
        """
        return now.kubelet is not None and now != self


class Registration:
    """One resource, kept registered by the task that runs `keep`. notice: is told which kubelet
    there is, before each attempt."""

    def __init__(
        self,
        server: ResourceServer,
        kubelet: Path,
        changes: Changes,
        notice: Callable[[Identity | None], Awaitable[None]],
        *,
        deadline: float,
    ) -> None:
        self._server = server
        self._kubelet = kubelet
        self._changes = changes
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
        server.on_unwatched = changes.wake

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
        self._changes.wake()

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
        while True:
            while (kubelet := identity(self._kubelet)) is None:
                await self._changes.wait(UNTIL_WOKEN)
            backoff, another = Backoff(FIRST_PAUSE, LONGEST_PAUSE), False
            while not another:
                if sockets := await self._attempt(self._register()):
                    return sockets
                backoff = backoff.failed()
                pause = backoff.pause(random.random())  # noqa: S311 - so that not all try at once
                another = await self._is_another(kubelet, pause)

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
        await self._notice(sockets.kubelet)
        await register(self._kubelet, self._server.resource, self._server.socket, self._deadline)
        return sockets

    async def _serve(self) -> None:
        await self._server.stop()
        await self._server.start()
        self.served.set()

    async def _is_another(self, kubelet: Identity, within: float) -> bool:
        """Return True as soon as the kubelet's socket is another, or we are asked; False after a
        pause."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within
        while identity(self._kubelet) == kubelet and not self._asked:
            left = until - loop.time()
            if left <= 0:
                return False
            await self._changes.wait(left)
        return True

    async def _until_lost(self, sockets: Sockets) -> str:
        """Why we have to register again."""
        self._server.expect_watcher()
        while not self._asked:
            now, unwatched, left = self._look(), self._server.unwatched, UNTIL_WOKEN
            if unwatched is not None:
                left = (UNWATCHED if self._server.was_watched else NEVER_WATCHED) - unwatched
            if sockets.stale(now):
                removed = now.kubelet == sockets.kubelet
                return "its socket was removed" if removed else "the kubelet's socket is another"
            if left <= 0 and now.kubelet is not None:
                return "the kubelet does not watch"
            await self._changes.wait(left if left > 0 else UNTIL_WOKEN)
        return "asked to"

    def _look(self) -> Sockets:
        return Sockets(identity(self._kubelet), identity(self._server.socket))
