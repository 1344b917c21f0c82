"""gpu-client at an allocation's socket: what vcuda-controller runs before it limits a program.

It names a pod and a container, which the original believes. Here the kernel names them, as for
HELLO, and what is named must fit.
"""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol
from weakref import WeakSet

from gpumanager.ids import AllocationID
from gpumanager.legacy.files import VDevice
from gpumanager.legacy.gateway import Gateway
from gpumanager.legacy.registrations import (
    MOST_REGISTRATIONS,
    LimitsOf,
    Registrations,
    TooManyRegistrations,
    directories,
)
from gpumanager.limits.processes import Process, alive, find
from gpumanager.limits.socket.peers import Neighbours, PeerCheck, peer_pid, refuse_other_pod
from gpumanager.limits.socket.protocol import HelloRefused, refused_by_system


class ContainerMember(Protocol):
    """The container that an allocation is for."""

    @property
    def uid(self) -> str:
        """Return the pod's."""

    @property
    def container(self) -> str:
        """Return its name."""


def nobody(_allocation: AllocationID) -> None:
    """Return the container of an allocation, where none is confirmed."""


@dataclass(frozen=True, slots=True)
class ForGpuClients:
    """What a manager has for all of them. driver: its major and minor version. registered: of the
    sockets at which a container has registered and lives."""

    gateway: Gateway
    resident: Callable[[AllocationID], ContainerMember | None] = nobody
    neighbours: Neighbours | None = None
    driver: tuple[int, int] = (0, 0)
    registered: WeakSet[Registrations] = field(default_factory=WeakSet)


About = Callable[[VDevice], Awaitable[ContainerMember | HelloRefused | None]]
"""Which container gpu-client means; None where nothing is known that it must fit."""


CALLS: Final = 8
"""At once at one socket, and the others wait: each takes five descriptors."""


class GpuClients:
    """Those at one socket. allocation: which one it serves. limits: what a container has now."""

    def __init__(
        self,
        around: ForGpuClients,
        directory: Path,
        allocation: AllocationID,
        limits: LimitsOf,
        *,
        peers: PeerCheck | None,
        about: About | None = None,
    ) -> None:
        self._around = around
        self._allocation = allocation
        self._peers = peers
        self._about = about
        self._calls = asyncio.Semaphore(CALLS)
        self._registrations = Registrations(
            directory,
            limits,
            neighbours=around.neighbours,
            driver=around.driver,
            registered=around.registered,
        )

    async def answer(self, connection: socket.socket, begun: bytes) -> None:
        """Answer a connection that speaks HTTP/2, to its end."""
        process = find(peer_pid(connection))
        async with self._calls:
            await self._around.gateway.carry(
                connection, begun, lambda device: self.register(process, device)
            )

    async def register(self, process: Process | None, device: VDevice) -> HelloRefused | None:
        """Give the caller's container its files. process: the caller; None: not known."""
        if process is None or not alive(process):
            return HelloRefused(errno.ESRCH, "the manager does not see who calls: it needs hostPID")
        if reason := refuse_other_pod(self._peers, self._allocation, process):
            return reason
        resident: ContainerMember | HelloRefused | None
        if self._about is None:
            resident = self._around.resident(self._allocation)
        else:
            resident = await self._about(device)
        if isinstance(resident, HelloRefused):
            return resident
        return self._add(device, resident, process)

    def _add(
        self, device: VDevice, resident: ContainerMember | None, process: Process
    ) -> HelloRefused | None:
        names = directories(device.container_id, device.container_name)
        if not names:
            given = device.container_id or device.container_name
            return HelloRefused(
                errno.EINVAL, f"{given!r} names no container: give its ID or its name"
            )
        if resident and device.pod_uid and device.pod_uid.replace("_", "-") != resident.uid:
            return HelloRefused(
                errno.EACCES, f"this socket is pod {resident.uid}'s, not {device.pod_uid}'s"
            )
        pod_uid = device.pod_uid or (resident.uid if resident else "")
        container = device.container_name or (resident.container if resident else "")
        try:
            self._registrations.add(names, pod_uid, container, process)
        except TooManyRegistrations:
            return HelloRefused(
                errno.ENOSPC, f"{MOST_REGISTRATIONS} containers have registered here already"
            )
        except OSError as error:
            return refused_by_system("writing the files of vcuda-controller", error)
        return None

    def limits_changed(self) -> None:
        self._registrations.limits_changed()

    def refresh(self) -> None:
        self._registrations.refresh()
