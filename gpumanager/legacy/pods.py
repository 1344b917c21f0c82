"""Pods that began under gpu-manager: each has a directory of its own, with one socket for all.

    <root>/<pod UID>/vcuda.sock                              mounted at /etc/vcuda
    <root>/<pod UID>/<container ID>/vcuda.config, pids.config

Their containers go on with vcuda-controller, and every program that they start calls gpu-client,
which waits for this socket for ever. Here it is answered, so that they need not be drained.
"""

import errno
import logging
import os
import shutil
import socket
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gpumanager.errors import GpuManagerError
from gpumanager.ids import AllocationID
from gpumanager.legacy.files import VDevice
from gpumanager.legacy.gpu_client import ForGpuClients, GpuClients
from gpumanager.limits.socket.listener import SocketListener
from gpumanager.limits.socket.peers import PeerCheck
from gpumanager.limits.socket.protocol import Greeting, HelloRefused, Http2, refusal
from gpumanager.limits.values import Limit

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LegacyContainer:
    """A container of such a pod. limits: none for whole GPUs."""

    allocation: AllocationID
    uid: str
    container: str
    limits: tuple[Limit, ...]


LegacyContainers = Mapping[str, tuple[LegacyContainer, ...]]
"""By their pods' UIDs; one at least for each."""


class ContainerNames(Protocol):
    """Finds a container by its ID."""

    async def name_of(self, container_id: str) -> str | None:
        """None for one that does not run; raises GpuManagerError where nobody can tell."""


class LegacyPods:
    """Serves those that have a directory below `root`."""

    def __init__(
        self,
        root: Path,
        around: ForGpuClients,
        peers: PeerCheck | None = None,
        names: ContainerNames | None = None,
    ) -> None:
        self._root = root
        self._around = around
        self._peers = peers
        self._names = names
        self._doors: dict[str, _Door] = {}

    def candidates(self) -> frozenset[str]:
        """Candidates for such a pod: each that has a directory or is served already."""
        return frozenset((*self._present(), *self._doors))

    def serve(self, containers: LegacyContainers) -> None:
        """These live now: open what is new, remove what has ended, keep the rest current."""
        for uid in set(self._doors) - set(containers):
            self._close(uid)
        for uid in self._present():
            if uid in containers and uid not in self._doors:
                self._open(uid, containers[uid])
        for uid, door in self._doors.items():
            door.keep(containers[uid])

    def stop(self) -> None:
        """Directories stay."""
        for door in self._doors.values():
            door.close()
        self._doors.clear()

    def _present(self) -> list[str]:
        with suppress(OSError), os.scandir(self._root) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        return []

    def _open(self, uid: str, containers: tuple[LegacyContainer, ...]) -> None:
        try:
            self._doors[uid] = _Door(
                self._root / uid, containers, self._around, self._peers, self._names
            )
            log.info("serving pod %s with the limits that gpu-manager gave it", uid)
        except (OSError, GpuManagerError) as error:
            log.warning("cannot serve gpu-manager's pod %s: %s", uid, error)

    def _close(self, uid: str) -> None:
        self._doors.pop(uid).close()
        try:
            shutil.rmtree(self._root / uid)
        except OSError as error:
            log.warning("cannot remove %s: %s", self._root / uid, error.strerror)


class _Door:
    """One pod's socket. Raises OSError and SocketPathTooLong, and then holds nothing."""

    def __init__(
        self,
        directory: Path,
        containers: tuple[LegacyContainer, ...],
        around: ForGpuClients,
        peers: PeerCheck | None,
        names: ContainerNames | None,
    ) -> None:
        self._containers = containers
        self._names = names
        self._clients = GpuClients(
            around,
            directory,
            containers[0].allocation,
            self._limits_of,
            peers=peers,
            about=self._about,
        )
        self._listener = SocketListener(directory, self._answer)

    def keep(self, containers: tuple[LegacyContainer, ...]) -> None:
        changed, self._containers = containers != self._containers, containers
        if changed:
            self._clients.limits_changed()
        self._clients.refresh()

    def close(self) -> None:
        self._listener.close()

    def _answer(
        self, connection: socket.socket, greeting: Greeting
    ) -> Coroutine[None, None, None] | None:
        if isinstance(greeting, Http2):
            return self._clients.answer(connection, greeting.begun)
        with suppress(OSError):
            refused = HelloRefused(errno.EPROTO, "this socket is for gpu-client alone")
            connection.send(refusal(refused), socket.MSG_DONTWAIT)
        return None

    def _limits_of(self, container: str) -> tuple[Limit, ...] | None:
        found = (one.limits for one in self._containers if one.container == container)
        return next(found, None)

    async def _about(self, device: VDevice) -> LegacyContainer | HelloRefused:
        """Which of the pod's containers this is."""
        name = device.container_name
        if not name and len(self._containers) > 1:
            try:
                name = await self._name_of(device.container_id)
            except GpuManagerError as error:
                return HelloRefused(errno.EAGAIN, str(error))
        found = [one for one in self._containers if name in ("", one.container)]
        return found[0] if found else HelloRefused(errno.EINVAL, f"no GPU was given to {name!r}")

    async def _name_of(self, container_id: str) -> str:
        found = await self._names.name_of(container_id) if self._names else None
        if found is None:
            raise GpuManagerError(f"the container runtime knows no container {container_id}")
        return found
