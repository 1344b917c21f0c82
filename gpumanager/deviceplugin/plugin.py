"""The device plugin: serves both resources and keeps each of them registered.

The kubelet, its directory and its socket may appear after the agent, disappear and appear again;
that never ends the agent. A setting that no kubelet accepts is an error at the start.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

from gpumanager.deviceplugin.allocator import Allocator
from gpumanager.deviceplugin.registration import (
    REGISTER_SECONDS,
    Identity,
    Registration,
    RegistrationFailed,
)
from gpumanager.deviceplugin.server import ResourceServer
from gpumanager.grpc_wire import CallTimer, PluginStanding
from gpumanager.names import KUBELET_SOCKET, VCORE, VCORE_SOCKET, VMEMORY, VMEMORY_SOCKET
from gpumanager.supervisor import Supervisor

logger = logging.getLogger(__name__)

OBSTACLE_SECONDS: Final = 5.0
"""Between two looks whether something still hinders us."""
SOCKETS: Final = {VCORE: VCORE_SOCKET, VMEMORY: VMEMORY_SOCKET}


class DevicePlugin:
    """directory: the kubelet's device plugin directory.

    deadline: seconds for one registration.
    obstacle: why no kubelet may find us yet; asked until it is empty, with a pause between.
    supervisor: of the tasks that keep us registered; it is stopped with us. timer: of the calls.
    """

    def __init__(
        self,
        allocator: Allocator,
        directory: Path,
        *,
        deadline: float = REGISTER_SECONDS,
        obstacle: Callable[[], Awaitable[str]] | None = None,
        pause: float = OBSTACLE_SECONDS,
        supervisor: Supervisor | None = None,
        timer: CallTimer | None = None,
    ) -> None:
        self._supervisor = supervisor or Supervisor()
        self._directory = directory
        self._obstacle = obstacle
        self._pause = pause
        self._servers = tuple(
            ResourceServer(allocator, resource, directory / name, timer)
            for resource, name in SOCKETS.items()
        )
        self._allocator = allocator
        self._kubelet: Identity | None = None
        self._noticing = asyncio.Lock()
        kubelet = directory / KUBELET_SOCKET
        self._registrations = tuple(
            Registration(server, kubelet, self._notice, deadline=deadline)
            for server in self._servers
        )
        for one in self._registrations:
            one.on_registered = self._log_once_registered

    @property
    def standings(self) -> tuple[PluginStanding, ...]:
        """How each resource stands with the kubelet now."""
        return tuple(one.standing for one in self._registrations)

    async def start(self) -> None:
        """Serve and stay registered from now on. Raises CannotServe for what no kubelet accepts."""
        for server in self._servers:
            server.check()
        if not self._directory.is_dir():
            logger.warning("%s: no such directory; waiting for a kubelet", self._directory)
        for one in self._registrations:
            name = f"registration of {one.standing.resource}"
            self._supervisor.keep(name, partial(self._keep, one))

    async def _keep(self, one: Registration) -> None:
        """Registered, as soon as nothing hinders us."""
        said = ""
        while self._obstacle and (hindered := await self._obstacle()):
            if hindered != said:
                logger.error("%s is not registered: %s", one.standing.resource, hindered)
            said = hindered
            await asyncio.sleep(self._pause)
        await one.keep()

    async def _notice(self, kubelet: Identity | None) -> None:
        """Notify the allocator of each start of the kubelet, once, before anything is registered: a
        kubelet with which no plugin is registered yet has no admission under way."""
        async with self._noticing:
            if kubelet == self._kubelet:
                return
            if self._kubelet is not None:
                logger.info("the kubelet restarted")
            await self._allocator.kubelet_started()
            self._kubelet = kubelet

    async def served(self, within: float) -> None:
        """Wait until both listen. If the directory exists, raises what keeps them from it."""
        while not await self._all(within, *(one.served for one in self._registrations)):
            failure = self._failure()
            if self._directory.is_dir() and failure is not None:
                raise failure

    async def registered(self, within: float) -> None:
        """Wait until both are registered; raises what kept one from it after `within` s."""
        if not await self._all(within, *(one.registered for one in self._registrations)):
            socket, cause = self._directory / KUBELET_SOCKET, f"no kubelet within {within:g} s"
            raise self._failure() or RegistrationFailed(VCORE, socket, cause)

    def register_anew(self) -> None:
        """Create both sockets again and register, although nothing seems to have changed."""
        for one in self._registrations:
            one.anew()

    async def refresh(self) -> None:
        """The allocator's devices have changed: tell the kubelet."""
        for server in self._servers:
            await server.refresh()

    async def stop(self) -> None:
        """Stop all tasks and servers and remove the sockets. Safe to repeat."""
        await self._supervisor.stop()
        for one in self._registrations:
            await one.withdraw()

    @staticmethod
    async def _all(within: float, *events: asyncio.Event) -> bool:
        """Return True when all are set; False after `within` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                for event in events:
                    await event.wait()
                return True
        return False

    def _failure(self) -> Exception | None:
        """Why one of the last attempts failed, if one did."""
        return next(filter(None, (one.failure for one in self._registrations)), None)

    def _log_once_registered(self) -> None:
        if all(one.standing.registered for one in self._registrations):
            logger.info("registered with the kubelet")
