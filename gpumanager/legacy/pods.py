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
        """Return it; None for one that does not run. Raises GpuManagerError where not known."""


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
        """Return candidates for such a pod: each that has a directory or is served already."""
        return frozenset((*self._present(), *self._doors))

    def serve(self, containers: LegacyContainers) -> None:
        """Serve these, which live now: add what is new, remove what has ended, update the rest."""
        for uid in set(self._doors) - set(containers):
            self._doors.pop(uid).close()
            try:
                shutil.rmtree(self._root / uid)
            except OSError as error:
                log.warning("cannot remove %s: %s", self._root / uid, error.strerror)
        for uid in self._present():
            if uid not in containers or uid in self._doors:
                continue
            try:
                self._doors[uid] = _Door(
                    self._root / uid, containers[uid], self._around, self._peers, self._names
                )
                log.info("serving pod %s with the limits that gpu-manager gave it", uid)
            except (OSError, GpuManagerError) as error:
                log.warning("cannot serve gpu-manager's pod %s: %s", uid, error)
        for uid, door in self._doors.items():
            door.keep(containers[uid])

    def stop(self) -> None:
        """Stop serving. Directories stay."""
        for door in self._doors.values():
            door.close()
        self._doors.clear()

    def _present(self) -> list[str]:
        with suppress(OSError), os.scandir(self._root) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        return []


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
        self._limits = {one.container: one.limits for one in reversed(containers)}
        self._names = names
        self._clients = GpuClients(
            around,
            directory,
            containers[0].allocation,
            self._limits.get,
            peers=peers,
            about=self._about,
        )
        self._listener = SocketListener(directory, self._answer)

    def keep(self, containers: tuple[LegacyContainer, ...]) -> None:
        if containers != self._containers:
            self._containers = containers
            self._limits.clear()
            self._limits |= {one.container: one.limits for one in reversed(containers)}
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

    async def _about(self, device: VDevice) -> LegacyContainer | HelloRefused:
        """Find which of the pod's containers this is."""
        name = device.container_name
        if not name and len(self._containers) > 1:
            try:
                known = await self._names.name_of(device.container_id) if self._names else None
            except GpuManagerError as error:
                return HelloRefused(errno.EAGAIN, str(error))
            if known is None:
                return HelloRefused(
                    errno.EAGAIN,
                    f"the container runtime knows no container {device.container_id}",
                )
            name = known
        found = [one for one in self._containers if name in ("", one.container)]
        return found[0] if found else HelloRefused(errno.EINVAL, f"no GPU was given to {name!r}")
