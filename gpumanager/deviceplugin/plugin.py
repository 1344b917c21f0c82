"""The device plugin: both resources served, registered, and registered again after each restart of
the kubelet.

A restart is noticed by the sockets; then ours are made anew, the allocator is told (nothing can be
under admission), and both resources are registered. A kubelet that does not answer is tried again,
for as long as it takes.
"""

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Final

from gpumanager.allocator.allocator import Allocator
from gpumanager.deviceplugin.register import DEADLINE, RegistrationFailed, register
from gpumanager.deviceplugin.server import CannotServe, ResourceServer
from gpumanager.deviceplugin.watch import PERIOD, Sockets
from gpumanager.errors import GpuManagerError
from gpumanager.names import KUBELET_SOCKET, VCORE, VCORE_SOCKET, VMEMORY, VMEMORY_SOCKET

logger = logging.getLogger(__name__)

SOCKETS: Final = {VCORE: VCORE_SOCKET, VMEMORY: VMEMORY_SOCKET}
LONGEST_PAUSE: Final = 5.0
"""Seconds between two attempts to register, after many."""


class DevicePlugin:
    """directory: the kubelet's device plugin directory. period: seconds between two looks at it.

    deadline: seconds for one registration.
    """

    def __init__(
        self,
        allocator: Allocator,
        directory: Path,
        *,
        period: float = PERIOD,
        deadline: float = DEADLINE,
    ) -> None:
        self._allocator = allocator
        self._directory = directory
        self._period = period
        self._deadline = deadline
        self._servers = tuple(
            ResourceServer(allocator, resource, directory / name)
            for resource, name in SOCKETS.items()
        )
        self._registered = asyncio.Event()
        self._serving = False
        self._failure: Exception | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve, and from now on keep registered. Raises CannotServe."""
        if not self._directory.is_dir():
            raise CannotServe(f"{self._directory}: no such directory; is there a kubelet here?")
        await self._serve()
        self._task = asyncio.create_task(self._keep_registered(), name="device plugin")

    @property
    def registered_resources(self) -> dict[str, bool]:
        """Which resources the kubelet knows us for now."""
        return {server.resource: self._registered.is_set() for server in self._servers}

    async def registered(self, within: float) -> None:
        """Wait for the registration of both resources; raises what kept it after `within` s."""
        try:
            await asyncio.wait_for(self._registered.wait(), within)
        except TimeoutError:
            cause = f"no kubelet socket within {within:g} s"
            raise self._failure or RegistrationFailed(
                VCORE, self._directory / KUBELET_SOCKET, cause
            ) from None

    async def refresh(self) -> None:
        """The allocator's devices have changed: tell the kubelet."""
        for server in self._servers:
            await server.refresh()

    async def stop(self) -> None:
        """Leave: no task, no server, no socket is left. Safe to repeat."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await self._withdraw()

    async def _serve(self) -> None:
        for server in self._servers:
            await server.start()
        self._serving = True

    async def _withdraw(self) -> None:
        self._serving = False
        self._registered.clear()
        for server in self._servers:
            await server.stop()

    async def _keep_registered(self) -> None:
        while True:
            sockets = await self._register_patiently()
            self._registered.set()
            while not sockets.stale(self._look()):  # noqa: ASYNC110  # another process changes them
                await asyncio.sleep(self._period)
            logger.info("the kubelet was restarted; registering again")
            self._serving = False

    async def _register_patiently(self) -> Sockets:
        """The sockets with which we are registered."""
        pause = self._period
        while True:
            try:
                if sockets := await self._register():
                    return sockets
            except (GpuManagerError, OSError) as error:
                self._failure = error
                logger.warning("%s; trying again", error)
                pause = min(2 * pause, LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def _register(self) -> Sockets | None:
        """None while there is no kubelet."""
        if not self._kubelet.exists():
            return None
        if not self._serving or None in self._look().own:
            await self._withdraw()
            await self._serve()
        sockets = self._look()
        await self._allocator.kubelet_started()
        for server in self._servers:
            await register(self._kubelet, server.resource, server.socket, self._deadline)
        return sockets

    @property
    def _kubelet(self) -> Path:
        return self._directory / KUBELET_SOCKET

    def _look(self) -> Sockets:
        return Sockets.look(self._kubelet, tuple(server.socket for server in self._servers))
